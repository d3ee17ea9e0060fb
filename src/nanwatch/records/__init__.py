"""What flows between the rooms: frozen dataclasses, JSON both ways, no torch."""

from nanwatch.records.incident import Birth, Cause, Check, Experiment, Hidden, Hop, Incident, Remedy
from nanwatch.records.json_form import from_json, to_json
from nanwatch.records.numbers import Numbers
from nanwatch.records.place import Frame
from nanwatch.records.run import Run, StepFacts

__all__ = [
    "Birth",
    "Cause",
    "Check",
    "Experiment",
    "Frame",
    "Hidden",
    "Hop",
    "Incident",
    "Numbers",
    "Remedy",
    "Run",
    "StepFacts",
    "from_json",
    "to_json",
]
