"""Shared by the tests of explain."""

from __future__ import annotations

import gc
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))

from nursery import Nursery
from workshop import Workshop

import nanwatch
import nanwatch.explain.diagnose as diagnosing
from nanwatch.explain.case import Case
from nanwatch.records import Cause, Incident

Run = Callable[..., nanwatch.Session]
Ask = Callable[[str, Callable[[Case], Any]], Any]
IncidentOf = Callable[..., Incident]


@pytest.fixture
def workshop(tmp_path: Path, nursery: Nursery) -> Workshop:
    return Workshop(tmp_path, nursery)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a program watched, in this process, up to its incident or its end."""
    monkeypatch.setenv("NANWATCH_LANG", "en")

    def run_it(source: str, **options: Any) -> nanwatch.Session:
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(source))
        code = compile(path.read_text(), str(path), "exec")
        gc.collect()  # optimizers of an earlier test's program would make this one a training
        session = nanwatch.watch(dir=tmp_path / "run", **options)
        try:
            with session:
                exec(code, {"__name__": "__main__"})
        except nanwatch.NonFiniteError:
            assert session.incidents
        assert not session.watcher.shield.broken
        return session

    return run_it


@pytest.fixture
def incident_of(run: Run) -> IncidentOf:
    """The one incident of a program, explained."""

    def incident(source: str, **options: Any) -> Incident:
        (found,) = run(source, **options).incidents
        return found

    return incident


@pytest.fixture
def ask(run: Run, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """What a question about the case of a program's incident gives, asked where a diagnosis is made."""

    def answer(source: str, question: Callable[[Case], Any]) -> Any:
        answers: list[Any] = []

        def diagnose(case: Case) -> diagnosing.Diagnosis:
            answers.append(question(case))
            return diagnosing.Diagnosis(Cause())

        with monkeypatch.context() as patched:
            patched.setattr(diagnosing, "diagnose", diagnose)
            run(source)
        (found,) = answers
        return found

    return answer
