"""An example of `examples/` under `nanwatch run`, beside the truth that `examples/truths/` tells of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "cases"))

from nursery import Nursery

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
RANKS = ("unknown", "possible", "likely", "proved")
"""From the least certain on."""


@dataclass(frozen=True)
class Watched:
    """What came of a run."""

    done: subprocess.CompletedProcess[str]
    incidents: list[dict[str, Any]]

    @property
    def said(self) -> str:
        return f"{self.done.stdout[-2000:]}\n{self.done.stderr[-4000:]}"


def truths(letter: str) -> dict[str, dict[str, Any]]:
    """fault -> cause, also, certainty, phase, line_contains; each entry of a list is equally true."""
    return json.loads((EXAMPLES / "truths" / f"{letter}.json").read_text(encoding="utf-8"))


def watched(nursery: Nursery, program: str, folder: Path, *arguments: str) -> Watched:
    """The example (a file or a folder of `examples/`) with its arguments, in a folder of its own."""
    run = folder / "run"
    command = ["-m", "nanwatch", "run", "--dir", str(run), str(EXAMPLES / program), *arguments]
    done = nursery.run(command, folder)
    return Watched(done, incidents_in(run))


def incidents_in(run: Path) -> list[dict[str, Any]]:
    files = sorted((run / "incidents").glob("*/incident.json"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def listed(nursery: Nursery, program: str, folder: Path) -> dict[str, str]:
    """fault -> what is wrong, as `--list` prints it."""
    path = EXAMPLES / program
    script = path / "__main__.py" if path.is_dir() else path
    done = nursery.run([str(script), "--list"], folder)
    assert done.returncode == 0, done.stderr
    return dict(line.split("\t") for line in done.stdout.splitlines())


def assert_told(found: Watched, truth: dict[str, Any]) -> dict[str, Any]:
    """The first incident names cause, phase and line as the truth has them, and surely enough."""
    assert found.done.returncode == 3, found.said
    incident = found.incidents[0]
    cause, birth = incident["cause"], incident["birth"]
    assert cause["id"] in [truth["cause"], *truth["also"]], (cause, found.said)
    assert RANKS.index(cause["certainty"]) >= RANKS.index(truth["certainty"]), (cause, found.said)
    assert incident["phase"] in any_of(truth["phase"]), found.said
    assert any(text in (birth["code"] or "") for text in any_of(truth["line_contains"])), (birth, found.said)
    return incident


def assert_quiet(found: Watched) -> None:
    """A healthy run: it ends as it should, and nobody cries."""
    assert found.done.returncode == 0, found.said
    assert found.incidents == [], found.said
    assert "nanwatch" not in found.done.stderr, found.said


def any_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
