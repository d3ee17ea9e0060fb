"""A step that ends well has not lost its fault if the op still fails and something later hides it:
x / (1 / 0) is a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanwatch.replay.again import Again
from nanwatch.replay.trace import Op
from nanwatch.watching.stack import user_frame

if TYPE_CHECKING:
    from nanwatch.explain.case import Case


def still_there(case: Case, again: Again) -> bool:
    """Whether the op at the line of the birth makes something bad of good values in this run too."""
    born = case.located.op
    if born is None:
        return False
    made = [op for op in again.tracer.trace.ops.values() if op.makes_nan or op.makes_inf]
    alike = [op for op in made if (op.name, op.phase) == (born.name, born.phase)]
    return any(_place(op) == _place(born) for op in alike)


def _place(op: Op) -> tuple[str, int] | None:
    frame = user_frame(op.stack)
    return None if frame is None else (frame.file, frame.line)
