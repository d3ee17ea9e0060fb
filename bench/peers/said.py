"""What a tool said about a script, and how to read it off a traceback."""

from __future__ import annotations

import re
from dataclasses import dataclass

FRAME = re.compile(r'File "[^"]*\bmain\.py", line (\d+)')
TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Said:
    """None: it said nothing about that. `node` is an autograd function, such as LogBackward0."""

    detected: bool = False
    phase: str | None = None
    op: str | None = None
    node: str | None = None
    line: int | None = None
    module: str | None = None
    named_module: bool = False
    cause: str | None = None
    certainty: str | None = None
    verified_fix: bool = False
    words: str = ""


NOTHING = Said()


def innermost_line(text: str) -> int | None:
    """The script's line that the last traceback in a text ends at, or passes through last."""
    if TRACEBACK not in text:
        return None
    lines = FRAME.findall(text[text.rindex(TRACEBACK) :])
    return int(lines[-1]) if lines else None


def last_words(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:160] if lines else ""


def read_traceback(output: str) -> Said:
    """What any person sees who runs it without a tool: the error that the script died of, if it did."""
    if TRACEBACK not in output:
        return NOTHING
    return Said(detected=True, line=innermost_line(output), words=last_words(output))
