"""A case of the public benchmark: a folder with an ordinary script and what is known about it.

    main.py      the script
    truth.json   where it goes bad and why, or that it is healthy; every field is explained in cases/README.md

`read_all` reads a folder of them. What is wrong with one is said in one line; the others are still read.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent / "cases"
GROUPS = (
    "forward backward loss optimizer data weights mask amp distributed compile inference offload"
).split()
PHASES = ("data", "weights", "forward", "loss", "backward", "optimizer")
CAUSES = (
    "bad-input index-out-of-range empty-selection bad-weights uninitialised-memory optimizer-state "
    "running-stats half-overflow half-underflow mask-overflow fully-masked-row overflow log-of-zero "
    "divide-by-zero invalid-domain inf-arithmetic singular-gradient where-gradient infeasible-target "
    "invalid-probabilities divergence amp-misuse bad-hyperparameter transfer-race data-race stale-copy "
    "compiler-fault transient-fault corrupted-memory "
).split()
ALWAYS = {"title", "source", "group", "healthy", "why"}
IF_BAD = {"phase", "op", "line", "module", "cause", "step", "kind", "fix"}
OPTIONAL_IF_BAD = {"also", "samples"}
OPTIONAL = {"processes"}
SOURCE = re.compile(r"[\w.-]+/[\w.-]+#\d+|https?://\S+")


class BadCase(ValueError):
    """A folder that is no case; says in one line why."""


@dataclass(frozen=True)
class Edit:
    """One line of the script replaced (or, with `after`, lines put in behind it)."""

    line: int
    after: bool
    text: str


@dataclass(frozen=True)
class Case:
    """What is known. Fields that may have several right answers are tuples."""

    folder: Path
    title: str
    source: str | None
    group: str
    healthy: bool
    why: str
    processes: int = 1
    phase: tuple[str, ...] = ()
    op: tuple[str | None, ...] = ()
    line: tuple[int | None, ...] = ()
    module: tuple[str | None, ...] = ()
    cause: str | None = None
    also: tuple[str, ...] = ()
    samples: tuple[int, ...] | None = None
    step: tuple[int, ...] = ()
    kind: tuple[str, ...] = ()
    fix: tuple[Edit, ...] = ()
    file: str = "main.py"

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def script(self) -> Path:
        return self.folder / self.file

    @property
    def causes(self) -> tuple[str, ...]:
        """Every cause that is a right answer."""
        return (self.cause, *self.also) if self.cause else ()

    def fixed(self) -> str:
        """The text of the script with its fix applied."""
        lines = self.script.read_text().splitlines()
        for edit in sorted(self.fix, key=lambda e: (e.line, e.after), reverse=True):
            new = edit.text.removesuffix("\n").split("\n") if edit.text else []
            lines[edit.line if edit.after else edit.line - 1 : edit.line] = new
        return "\n".join(lines) + "\n"


def read_all(cases: Path, words: list[str] | None = None) -> tuple[list[Case], list[str]]:
    """The cases in a folder (those whose name contains one of the words), and a line for each bad one."""
    if not cases.is_dir():
        return [], [
            f"{cases}: no such folder; expected one folder per case in it, each with main.py and truth.json"
        ]
    folders = [p for p in sorted(cases.iterdir()) if p.is_dir() and not p.name.startswith((".", "__"))]
    if words:
        folders = [p for p in folders if any(word in p.name for word in words)]
    good, bad = [], []
    for folder in folders:
        try:
            good.append(read(folder))
        except BadCase as error:
            bad.append(str(error))
    return good, bad


def read(folder: Path) -> Case:
    script, truth = folder / "main.py", folder / "truth.json"
    for file in (script, truth):
        if not file.is_file():
            raise BadCase(
                f"{folder.name}: has no {file.name}; a case is a folder with main.py and truth.json"
            )
    try:
        data = json.loads(truth.read_text())
    except ValueError as error:
        raise BadCase(f"{folder.name}/truth.json: is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadCase(f"{folder.name}/truth.json: is a {type(data).__name__}, expected an object")
    problem = _problem(data, len(script.read_text().splitlines()))
    if problem:
        raise BadCase(f"{folder.name}/truth.json: {problem}")
    several = {k: _any_of(data[k]) for k in ("phase", "op", "line", "module", "step", "kind") if k in data}
    edits = tuple(Edit(e.get("line", e.get("after")), "after" in e, e["with"]) for e in data.get("fix", ()))
    return Case(
        folder,
        **{k: data[k] for k in ALWAYS},
        **several,
        processes=data.get("processes", 1),
        cause=data.get("cause"),
        also=tuple(data.get("also", ())),
        samples=tuple(data["samples"]) if data.get("samples") is not None else None,
        fix=edits,
    )


def _any_of(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def _problem(data: dict[str, Any], lines: int) -> str | None:
    """What is wrong with a truth, or None."""
    needed = ALWAYS if data.get("healthy") is True else ALWAYS | IF_BAD
    allowed = needed | OPTIONAL | (set() if data.get("healthy") is True else OPTIONAL_IF_BAD)
    if missing := sorted(needed - data.keys()):
        return f"lacks {', '.join(missing)}"
    if extra := sorted(data.keys() - allowed):
        return f"has unknown fields: {', '.join(extra)}"
    if not isinstance(data["healthy"], bool):
        return f"healthy is {data['healthy']!r}, expected true or false"
    for field in ("title", "why"):
        if not isinstance(data[field], str) or not data[field].strip():
            return f"{field} is {data[field]!r}, expected a sentence"
    if data["group"] not in GROUPS:
        return f"group is {data['group']!r}, expected one of {', '.join(GROUPS)}"
    if data["source"] is None:
        if not data["healthy"]:
            return "source is null; a bad case needs the report it is built from, owner/repo#number"
    elif not isinstance(data["source"], str) or not SOURCE.fullmatch(data["source"]):
        return f"source is {data['source']!r}, expected owner/repo#number or the address of a page"
    processes = data.get("processes", 1)
    if type(processes) is not int or not 1 <= processes <= 8:
        return f"processes is {processes!r}, expected a number from 1 to 8"
    return None if data["healthy"] else _problem_of_bad(data, lines)


def _problem_of_bad(data: dict[str, Any], lines: int) -> str | None:
    for field, choices in (("phase", PHASES), ("kind", ("nan", "inf"))):
        for value in _any_of(data[field]):
            if value not in choices:
                return f"{field} is {value!r}, expected one of {', '.join(choices)}"
    for cause in (data["cause"], *data.get("also", ())):
        if cause not in CAUSES:
            return f"cause {cause!r} is not in the list; `nanwatch explain` prints it"
    for line in _any_of(data["line"]):
        if line is not None and (type(line) is not int or not 1 <= line <= lines):
            return f"line is {line!r}, main.py has lines 1 to {lines}"
    for field in ("op", "module"):
        for value in _any_of(data[field]):
            if value is not None and not isinstance(value, str):
                return f"{field} is {value!r}, expected a name or null"
    for field in ("step", "samples"):
        for value in _any_of(data.get(field, 0)):
            if value is not None and (type(value) is not int or value < 0):
                return f"{field} has {value!r}, expected numbers from 0 on"
    if not isinstance(data["fix"], list) or not data["fix"]:
        return 'fix is empty; expected edits of main.py: [{"line": 31, "with": "new text"}]'
    for edit in data["fix"]:
        if not isinstance(edit, dict) or set(edit) not in ({"line", "with"}, {"after", "with"}):
            return f'fix has {edit!r}, expected {{"line" or "after": number, "with": text}}'
        number = edit.get("line", edit.get("after"))
        if type(number) is not int or not (0 if "after" in edit else 1) <= number <= lines:
            return f"fix names line {number!r}, main.py has lines 1 to {lines}"
        if not isinstance(edit["with"], str):
            return f"fix has {edit['with']!r} for a text"
    return None
