"""The first example on each cause's page gets that cause, and never another one with certainty "proved".

`python -m bench.diagnosis` does the same for every program and prints the table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cases"))

import truth as truths
from nursery import Nursery

from nanwatch.explain.causes import CAUSES, IDS
from nanwatch.records import Incident, from_json


def test_the_list_is_the_one_of_the_programs() -> None:
    assert [*IDS, "unknown"] == list(truths.CAUSES)


@pytest.mark.parametrize("identity", IDS)
def test_the_first_example(identity: str, nursery: Nursery, tmp_path: Path) -> None:
    name = CAUSES[identity].PAGE.examples[0]
    truth = truths.read(truths.PROGRAMS / f"{name}.py")
    if truth.needs is not None:
        pytest.skip(f"needs {truth.needs}")
    arguments = ["-m", "nanwatch", "run", "--dir", str(tmp_path / "run"), str(truth.path)]
    done = nursery.run(arguments, tmp_path)
    assert done.returncode == truth.exit, done.stderr[-3000:]
    written = (tmp_path / "run/incidents/0001/incident.json").read_text()
    incident = from_json(Incident, json.loads(written))
    assert incident.cause.id == identity, incident.cause
    assert incident.cause.id in truth.causes
    assert incident.cause.certainty != "unknown" and incident.cause.why
