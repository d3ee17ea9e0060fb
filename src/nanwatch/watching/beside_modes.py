"""A TorchDispatchMode of the program's hears what the program does, and nothing of nanwatch's: neither what
we compute nor a step that is run again. It may count ops, or refuse them.

The modes of a compiler that works something out (fake tensors, proxies) stay: with them on there is nothing
to look at, which must be known (`pretending.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")

_depth = torch._C._len_torch_dispatch_stack
_mode_at = torch._C._get_dispatch_stack_at
_mode_of = torch._C._get_dispatch_mode
_pop: Callable[[Any], Any] = torch._C._pop_torch_dispatch_stack
_push = torch._C._push_on_torch_dispatch_stack
_KINDS = tuple(torch._C._TorchDispatchModeKey.__members__.values())


def beside_modes(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    modes = [_mode_at(place) for place in range(_programs_own())]
    try:
        while _programs_own():
            _pop(None)
        return work(*args, **kwargs)
    finally:
        try:
            _put_back(modes)
        except BaseException:  # of a signal handler: the program's `with` is still to end
            _put_back(modes)
            raise


def _put_back(modes: list[Any]) -> None:
    while (there := _programs_own()) < len(modes):
        _push(modes[there])


def _programs_own() -> int:
    """How many modes there are, without those of a compiler, which torch counts after them."""
    return _depth() - sum(_mode_of(kind) is not None for kind in _KINDS)
