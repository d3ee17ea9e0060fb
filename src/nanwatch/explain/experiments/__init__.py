"""One file per experiment. An experiment file has

NAME            as in incident.json
TITLE           what is being done, for the progress line, in both languages
applies(case)   whether it can tell anything about this step
run(case)       a case.Outcome; leaves no trace in the program
"""

from __future__ import annotations

import importlib
from types import ModuleType

FILES = (
    "discarded",
    "repeat",
    "rows_dropped",
    "another_batch",
    "poisoned_memory",
    "eager",
    "on_cpu",
    "synchronous_copies",
    "one_worker",
    "lower_rate",
    "poisoned_update",
    "fresh_statistics",
    "fresh_optimizer_state",
)

EXPERIMENTS: dict[str, ModuleType] = {}
for _file in FILES:
    _module = importlib.import_module(f"nanwatch.explain.experiments.{_file}")
    EXPERIMENTS[_module.NAME] = _module
