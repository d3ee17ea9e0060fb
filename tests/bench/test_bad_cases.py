"""Folders that are no cases: one clear line each, and the rest is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_cases import BAD, HEALTHY, HEALTHY_TRUTH, TRUTH, write

from bench.case import read_all


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"cause": "bad-luck"}, "cause 'bad-luck' is not in the list"),
        ({"also": ["worse-luck"]}, "cause 'worse-luck' is not in the list"),
        ({"line": 400}, "line is 400, main.py has lines 1 to 26"),
        ({"phase": "middle"}, "phase is 'middle', expected one of data, weights"),
        ({"kind": "big"}, "kind is 'big', expected one of nan, inf"),
        ({"group": "other"}, "group is 'other'"),
        ({"source": "hearsay"}, "source is 'hearsay', expected owner/repo#number"),
        ({"source": None}, "source is null"),
        ({"step": -1}, "step has -1"),
        ({"fix": []}, "fix is empty"),
        ({"fix": [{"line": 99, "with": ""}]}, "fix names line 99, main.py has lines 1 to 26"),
        ({"fix": [{"with": ""}]}, "fix has {'with': ''}"),
        ({"processes": 0}, "processes is 0"),
        ({"speed": 3}, "has unknown fields: speed"),
        ({"title": ""}, "title is ''"),
        ({"healthy": "yes"}, "healthy is 'yes'"),
    ],
)
def test_what_is_wrong_with_a_truth_is_said(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    write(tmp_path, "wrong", BAD, {**TRUTH, **change})
    write(tmp_path, "right", HEALTHY, HEALTHY_TRUTH)
    good, bad = read_all(tmp_path)
    assert [case.name for case in good] == ["right"]
    (line,) = bad
    assert line.startswith("wrong/truth.json: ") and expected in line and "\n" not in line


def test_missing_files_and_broken_json_are_said(tmp_path: Path) -> None:
    (write(tmp_path, "no_script", BAD, TRUTH) / "main.py").unlink()
    (write(tmp_path, "no_truth", BAD, TRUTH) / "truth.json").unlink()
    write(tmp_path, "broken", BAD, "{")
    write(tmp_path, "listed", BAD, "[]")
    write(tmp_path, "short", BAD, {"healthy": False})
    good, bad = read_all(tmp_path)
    assert good == []
    for line, expected in zip(
        bad,
        ("broken/truth.json: is not JSON", "is a list", "no main.py", "no truth.json", "lacks cause, fix"),
        strict=True,
    ):
        assert expected in line
    assert "no such folder" in read_all(tmp_path / "nowhere")[1][0]
