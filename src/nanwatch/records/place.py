"""Where in the source something happened."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """One line of a call stack. `library` frames are folded when a person reads the stack."""

    file: str
    line: int
    function: str
    code: str = ""
    library: bool = False
