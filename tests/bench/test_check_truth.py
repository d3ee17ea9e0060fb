"""The check of the public cases' truths: it passes what is right, and each wrong statement makes it fail."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from small_cases import (
    BAD,
    DATA,
    DATA_TRUTH,
    GRADIENT,
    GRADIENT_TRUTH,
    HEALTHY,
    HEALTHY_TRUTH,
    TRUTH,
    write,
)

from bench import fresh_children
from bench.case import CAUSES, read
from nanwatch.explain.causes import IDS

ROOT = Path(__file__).resolve().parents[2]
NO_FIX = [{"after": 1, "with": "import math"}]
BREAKS = [{"line": 18, "with": "optimizer = None"}]


def check(cases: Path) -> dict[str, str]:
    """Case -> all that is said about it, by the command that people run."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.check_truth", "--cases", cases],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stderr == ""
    said: dict[str, str] = {}
    for line in done.stdout.splitlines():
        if line.startswith(("OK ", "BAD ")):
            name = line.split()[1].split(":")[0].split("/")[0]
        said[name] = f"{said[name]}\n{line}" if name in said else line
    assert (done.returncode == 0) == all(text.startswith("OK") for text in said.values())
    return said


def test_right_truths_hold(tmp_path: Path) -> None:
    write(tmp_path, "forward", BAD, TRUTH)
    write(tmp_path, "several", BAD, {**TRUTH, "line": [3, 14], "op": [None, "aten.div.Tensor"]})
    write(tmp_path, "gradient", GRADIENT, {**GRADIENT_TRUTH, "op": "aten.div.Tensor"})
    write(tmp_path, "data", DATA, DATA_TRUTH)
    write(tmp_path, "healthy", HEALTHY, HEALTHY_TRUTH)
    said = check(tmp_path)
    assert {name: text.split()[0] for name, text in said.items()} == dict.fromkeys(
        ("data", "forward", "gradient", "healthy", "several"), "OK"
    )


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "line": (BAD, {**TRUTH, "line": 13}, "differs in line"),
    "op": (BAD, {**TRUTH, "op": "aten.mul.Tensor"}, "differs in op"),
    "module": (BAD, {**TRUTH, "module": "fc"}, "differs in module"),
    "phase": (BAD, {**TRUTH, "phase": "backward"}, "differs in phase"),
    "kind": (BAD, {**TRUTH, "kind": "nan"}, "differs in kind"),
    "samples": (BAD, {**TRUTH, "samples": [4]}, "differs in samples"),
    "late_step": (BAD, {**TRUTH, "step": 3}, "goes bad in step 2, the truth says 3"),
    "early_step": (BAD, {**TRUTH, "step": 1}, "differs in step"),
    "no_fix": (BAD, {**TRUTH, "fix": NO_FIX}, "with the fix: output in step 2"),
    "breaks": (BAD, {**TRUTH, "fix": BREAKS}, "with the fix: error (AttributeError"),
    "gradient_line": (GRADIENT, {**GRADIENT_TRUTH, "line": 11}, "differs in line"),
    "data_line": (DATA, {**DATA_TRUTH, "line": 11}, "nothing non-finite arrives on line 11, but on 10 or 6"),
    "data_rows": (DATA, {**DATA_TRUTH, "samples": [0]}, "is given bad rows [1], the truth says [0]"),
    "data_step": (DATA, {**DATA_TRUTH, "step": 1}, "goes bad in step 2, the truth says 1"),
    "not_bad": (HEALTHY, TRUTH, "does not go bad"),
    "not_healthy": (BAD, HEALTHY_TRUTH, "is not healthy: output in step 2"),
}


@pytest.fixture(scope="module")
def said_about_wrong_ones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cases = tmp_path_factory.mktemp("wrong")
    for name, (script, truth, _) in WRONG.items():
        write(cases, name, script, truth)
    return check(cases)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_statement_is_found(name: str, said_about_wrong_ones: dict[str, str]) -> None:
    said = said_about_wrong_ones[name]
    assert said.startswith("BAD") and WRONG[name][2] in said, said


def test_how_a_process_died_is_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def hangs() -> None:
        time.sleep(60)

    def fails() -> None:
        raise KeyError("x")

    monkeypatch.setattr(fresh_children, "LIMIT", 1)
    with capfd.disabled():  # the children print to files of their own
        (hung,), (failed,) = (fresh_children.in_children(work) for work in (hangs, fails))
    assert hung.hung and "did not end within 1 s" in hung.death and hung.death.endswith("in hangs")
    assert not failed.hung and failed.death.endswith("KeyError: 'x'")


def test_a_fix_may_replace_and_insert(tmp_path: Path) -> None:
    fix = [{"after": 0, "with": "import math"}, {"line": 4, "with": ""}, {"line": 5, "with": "a\nb"}]
    folder = write(tmp_path, "edited", BAD, {**TRUTH, "fix": fix})
    lines = BAD.splitlines()
    assert read(folder).fixed().splitlines() == ["import math", *lines[:3], "a", "b", *lines[5:]]


def test_the_causes_are_those_of_nanwatch() -> None:
    assert list(IDS) == CAUSES
