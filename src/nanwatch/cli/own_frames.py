"""Tracebacks as Python shows them, without the frames that nanwatch put in between."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType

from nanwatch.watching.stack import is_own


def show_traceback(error: BaseException) -> None:
    """Through `sys.excepthook`, as Python would, and known to what looks it up afterwards."""
    hide_own_frames(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    if sys.excepthook is not sys.__excepthook__:
        sys.excepthook(type(error), error, error.__traceback__)
    elif sys.stderr is not None:  # else it would be printed to stdout
        traceback.print_exception(error)


def hide_own_frames(error: BaseException) -> None:
    """Takes nanwatch's frames out of the tracebacks of `error` and of the errors that led to it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _users_frames(one.__traceback__)
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions


def _users_frames(shown: TracebackType | None) -> TracebackType | None:
    kept: list[TracebackType] = []
    after_own = False
    while shown is not None:
        if is_own(shown.tb_frame.f_code.co_filename):
            after_own = True
            while kept and _leads_to_own(kept[-1]):
                kept.pop()
        elif not (after_own and _leads_to_own(shown)):
            after_own = False
            kept.append(shown)
        shown = shown.tb_next
    following = None
    for frame in reversed(kept):
        frame.tb_next = following
        following = frame
    return following


def _leads_to_own(frame: TracebackType) -> bool:
    """What stands between the program and nanwatch: `python -m nanwatch`, and torch's way to a tracer."""
    file = frame.tb_frame.f_code.co_filename
    return "runpy" in file or file.endswith(
        ("torch/_compile.py", "torch/_dynamo/eval_frame.py", "torch/_ops.py")
    )
