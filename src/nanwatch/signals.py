"""Exceptions that the program's own signal handlers raise, whatever code of ours they come upon. A leaf."""

from __future__ import annotations

import os
from types import FrameType, TracebackType

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def from_a_handler(error: BaseException) -> bool:
    """Whether a signal handler of the program (or its trace function) has raised `error`. Python calls these
    with the frame that they come upon: no other function is given the frame that called it."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        if _was_called_upon(trace.tb_frame, trace.tb_next.tb_frame):
            return True
        trace = trace.tb_next
    return False


def let_through(error: Exception) -> None:
    """Raises `error` where it is none of ours to catch."""
    if from_a_handler(error):
        raise error


def _was_called_upon(frame: FrameType, handler: FrameType) -> bool:
    if handler.f_code.co_filename.startswith(_OURS):
        return False
    given = list(handler.f_locals.values())
    given += [each for value in given if type(value) is tuple for each in value]  # def handler(*args)
    return any(each is frame for each in given)
