"""`steps-rank0.jsonl`: a line a step, append-only, whole lines only.

Lines are gathered and written with one `write` when 64 wait or a second has passed since the last
write, so a SIGKILL loses no more than that, and a program with steps longer than a second loses none.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from nanwatch.records import StepFacts, from_json, to_json

FLUSH_LINES = 64
FLUSH_SECONDS = 1.0
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_DEFAULTS = {f.name: f.default for f in fields(StepFacts) if f.name not in ("step", "facts")}


class StepLog:
    """The step records of one rank, written by one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: list[StepFacts] = []
        self._last_write = 0.0
        self._descriptor: int | None = None
        self._owner = os.getpid()

    def append(self, facts: StepFacts) -> None:
        """Costs a microsecond: lines are made when they are written. Raises OSError when they cannot be
        written (they are dropped)."""
        self._waiting.append(facts)
        now = time.monotonic()
        if len(self._waiting) >= FLUSH_LINES or now - self._last_write >= FLUSH_SECONDS:
            self.flush()
            self._last_write = now

    def flush(self) -> None:
        """Write what waits. In a forked child this does nothing: the lines are the parent's."""
        lines, self._waiting = self._waiting, []
        if lines and os.getpid() == self._owner:
            _write_whole(self._open(), "".join(map(step_line, lines)).encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        try:
            self.flush()
        finally:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                os.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            self._descriptor = os.open(self.path, flags, 0o666)
            _end_torn_line(self._descriptor)
        return self._descriptor


def step_line(facts: StepFacts) -> str:
    """One JSON object and a newline; fields at their default are left out."""
    line: dict[str, Any] = {"step": facts.step}
    for name, default in _DEFAULTS.items():
        value = getattr(facts, name)
        if value != default:
            line[name] = value if name != "seconds" else round(value, 6)
    if facts.facts:
        line["facts"] = facts.facts
    try:
        return _encode(line) + "\n"
    except (TypeError, ValueError):  # a value JSON cannot hold: the slower road
        return _encode(to_json(line)) + "\n"


def read_steps(path: Path) -> Iterator[StepFacts]:
    """The steps in a file, in the order written. Torn or foreign lines are passed over."""
    with open(path, "rb") as file:
        for raw in file:
            facts = _read_line(raw)
            if facts is not None:
                yield facts


def _read_line(raw: bytes) -> StepFacts | None:
    if not raw.endswith(b"\n"):
        return None
    try:
        data = json.loads(raw)
        return from_json(StepFacts, data) if isinstance(data.get("step"), int) else None
    except (ValueError, AttributeError):
        return None


def _write_whole(descriptor: int, data: bytes) -> None:
    """All of `data` or nothing: what a full disk cut short is taken back."""
    before = os.fstat(descriptor).st_size
    written = 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
    except OSError:
        if written:
            os.ftruncate(descriptor, before)
        raise


def _end_torn_line(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    if size == 0:
        return
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    if os.read(descriptor, 1) != b"\n":
        os.write(descriptor, b"\n")
