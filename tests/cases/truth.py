"""What each program in `programs/` is known to do, read from the program itself.

A program ends with a comment block, `# truth:` and commented JSON below it; a bad one marks the
line where the harmful value is born with `# BIRTH`. A value of `phase`, `op`, `module`, `step`,
`kind` may be a list: each entry is equally true. `op: null` means that no op made the value. Inside
compiled code there is no line of the program: the line that called it is marked `# OR HERE`.

`cause` is an id of the closed list, `also` are others that can be argued as well, `tempting` are
those that a careless diagnosis would name, wrongly. `needs: "cuda"` marks a program for a GPU only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
MARKER = "# BIRTH"
OTHER_MARKER = "# OR HERE"
HEADER = "# truth:"
PHASES = {"data", "weights", "forward", "loss", "backward", "optimizer"}
FIELDS = {"phase", "op", "module", "step", "kind", "cause", "exit"}
OPTIONAL = {"samples", "also", "tempting", "needs"}
CAUSES = (
    "bad-input",
    "index-out-of-range",
    "empty-selection",
    "bad-weights",
    "uninitialised-memory",
    "optimizer-state",
    "running-stats",
    "half-overflow",
    "half-underflow",
    "mask-overflow",
    "fully-masked-row",
    "overflow",
    "log-of-zero",
    "divide-by-zero",
    "invalid-domain",
    "inf-arithmetic",
    "singular-gradient",
    "where-gradient",
    "infeasible-target",
    "invalid-probabilities",
    "divergence",
    "amp-misuse",
    "bad-hyperparameter",
    "transfer-race",
    "data-race",
    "stale-copy",
    "compiler-fault",
    "transient-fault",
    "corrupted-memory",
    "unknown",
)


@dataclass(frozen=True)
class Truth:
    path: Path
    healthy: bool
    exit: int
    line: int | None = None
    other_line: int | None = None
    phase: tuple[str, ...] = ()
    op: tuple[str | None, ...] = ()
    module: tuple[str | None, ...] = ()
    step: tuple[int, ...] = ()
    kind: tuple[str, ...] = ()
    samples: tuple[int, ...] | None = None
    cause: str | None = None
    also: tuple[str, ...] = ()
    tempting: tuple[str, ...] = ()
    needs: str | None = None
    patient: bool = False
    """It deals with what its models return itself, and is run with `--patient`."""

    @property
    def options(self) -> tuple[str, ...]:
        return ("--patient",) if self.patient else ()

    @property
    def causes(self) -> tuple[str, ...]:
        """Every cause that is a right answer."""
        return (self.cause, *self.also) if self.cause else ()

    @property
    def name(self) -> str:
        return self.path.stem


def _any_of(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def read(path: Path) -> Truth:
    """The truth of one program; ValueError when it is not written as it should be."""
    lines = path.read_text().splitlines()
    headers = [n for n, text in enumerate(lines) if text.strip() == HEADER]
    if len(headers) != 1:
        raise ValueError(f"{path.name}: {len(headers)} truth blocks, expected 1")
    block = lines[headers[0] + 1 :]
    if not all(text.startswith("#") for text in block if text.strip()):
        raise ValueError(f"{path.name}: code below the truth block")
    data = json.loads("\n".join(text.lstrip("#") for text in block))
    marked = [n for n, text in enumerate(lines, 1) if text.rstrip().endswith(MARKER)]
    others = [n for n, text in enumerate(lines, 1) if text.rstrip().endswith(OTHER_MARKER)]
    if data.get("healthy"):
        patient = data.pop("patient", False)
        if marked or data != {"healthy": True, "exit": 0}:
            raise ValueError(f"{path.name}: a healthy program has no {MARKER} and exits 0")
        return Truth(path, healthy=True, exit=0, patient=patient)
    if len(marked) != 1:
        raise ValueError(f"{path.name}: {len(marked)} lines marked {MARKER}, expected 1")
    if not FIELDS <= data.keys() <= FIELDS | OPTIONAL:
        raise ValueError(f"{path.name}: wrong fields {sorted(data)}")
    truth = Truth(
        path,
        healthy=False,
        exit=data["exit"],
        line=marked[0],
        other_line=others[0] if others else None,
        phase=_any_of(data["phase"]),
        op=_any_of(data["op"]),
        module=_any_of(data["module"]),
        step=_any_of(data["step"]),
        kind=_any_of(data["kind"]),
        samples=tuple(data["samples"]) if "samples" in data else None,
        cause=data["cause"],
        also=tuple(data.get("also", ())),
        tempting=tuple(data.get("tempting", ())),
        needs=data.get("needs"),
    )
    if not set(truth.phase) <= PHASES or not set(truth.kind) <= {"nan", "inf"}:
        raise ValueError(f"{path.name}: unknown phase or kind")
    named = [*truth.causes, *truth.tempting]
    if not set(named) <= set(CAUSES) - {"unknown"} or len(set(named)) < len(named):
        raise ValueError(f"{path.name}: causes {named}: not in the list, or named twice")
    if truth.needs not in (None, "cuda"):
        raise ValueError(f"{path.name}: needs {truth.needs!r}?")
    return truth


def all_programs() -> list[Path]:
    return sorted(PROGRAMS.glob("*.py"))
