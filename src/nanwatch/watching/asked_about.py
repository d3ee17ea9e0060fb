"""What the program itself looks at with `isnan` and the like, or gives to a function that passes over NaN: it
knows what it does about it."""

from __future__ import annotations

import os

import torch

from nanwatch.watching.left_unread import since
from nanwatch.watching.tape import Entry, Tape, given_to

QUESTIONS = ("isnan", "isinf", "isfinite")
PASSING_OVER = (
    "nanmean",
    "nansum",
    "nanmedian",
    "nanquantile",
    "nan_to_num",
    "nan_to_num_",
    "fmin",
    "fmax",
)
_TORCH = os.path.dirname(torch.__file__) + os.sep
COMPARES = ("ne", "eq", "__ne__", "__eq__")


def asked_about(entries: list[Entry]) -> set[int]:
    """By identity, since the last update."""
    return {id(t) for e in entries if getattr(e.call, "__name__", "") in QUESTIONS for t in given_to(e)}


def is_asked_about(call: Entry, tape: Tape) -> bool:
    """Whether the program has since looked at what this call returned, or at what it made of it."""
    made = {id(tensor) for tensor, _ in call.made}
    for entry in since(call, tape):
        if any(id(t) in made for t in given_to(entry)):
            if _asks(entry) and not _is_torch_itself(entry):
                return True
            made.update(id(tensor) for tensor, _ in entry.made)
    return False


def _asks(entry: Entry) -> bool:
    """`x != x`, too: only NaN is not what it is."""
    name = getattr(entry.call, "__name__", "")
    if name in COMPARES:
        return len(entry.args) == 2 and entry.args[0] is entry.args[1]
    return name in QUESTIONS or name in PASSING_OVER


def _is_torch_itself(entry: Entry) -> bool:
    """A distribution looks at its arguments, and refuses them: the program does not know of that."""
    return bool(entry.stack) and entry.stack[0][0].co_filename.startswith(_TORCH)
