"""A warning names the line that the program made a call at, not the one of ours that handed the call on.

torch's warnings name the innermost function of Python, which is ours where a mode or a tracer of ours is on.
Where a warning is shown, or recorded, the functions that led to it are still under way.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from nanwatch.signals import let_through
from nanwatch.watching.stack import is_own

NAME = "_showwarnmsg"
"""Of Python's own module: what every warning goes through that is not filtered out, wherever it goes then."""

_calls_of_ops = os.path.join(os.path.dirname(torch.__file__), "_ops.py")


def with_their_own_places(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """To take the place of `warnings._showwarnmsg`."""

    def _showwarnmsg(message: Any) -> Any:
        try:
            message = _placed(message, sys._getframe(1))
        except Exception as error:  # then it says what it says
            let_through(error)
        return original(message)

    return _showwarnmsg


def _placed(message: Any, frame: FrameType | None) -> Any:
    if not is_own(message.filename) and message.filename != _calls_of_ops:
        return message
    while frame is not None and frame.f_code.co_filename != message.filename:
        frame = frame.f_back
    while frame is not None and frame.f_code.co_filename == _calls_of_ops:
        frame = frame.f_back
    if frame is None or not is_own(frame.f_code.co_filename):
        return message  # of an op that the program itself called so
    frame = _who_called(frame)
    if frame is None:
        return message
    rest = message.category, frame.f_code.co_filename, frame.f_lineno, message.file, message.line
    return warnings.WarningMessage(message.message, *rest, message.source)


def _who_called(frame: FrameType) -> FrameType | None:
    """The first function that is not ours, outwards. Where torch's own function asked a mode whether it wants
    the call, it is under way a second time further in."""
    outer: FrameType | None = frame
    asked = False
    while outer is not None and is_own(outer.f_code.co_filename):
        asked = outer.f_code.co_name == "handle_torch_function"
        outer = outer.f_back
    return outer.f_back if outer is not None and asked else outer
