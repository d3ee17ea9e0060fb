"""`model.forward(x)`: nobody calls the model, and each of its parts looks like a model of its own. Where a
program trains nothing, its steps are the calls of its model: this tells which parts one of them calls."""

from __future__ import annotations

import weakref
from types import FrameType

from torch import nn


class CalledByName:
    """Asked at each call of a module that is in no other one."""

    def __init__(self) -> None:
        self._began: tuple[weakref.ref[nn.Module], weakref.ref[nn.Module], int] | None = None
        """The model whose `forward` is under way, the first part that it has called, and where."""

    def goes_on(self, module: nn.Module, frame: FrameType) -> bool:
        """Whether the same `forward` has called another module before this one. When the first comes again,
        it is the next call of the model. `frame`: of the call of the module."""
        caller = frame.f_back
        model = _outermost(caller)
        if caller is None or model is None:
            self._began = None
            return False
        if self._began is not None and self._began[0]() is model:
            _, first, place = self._began
            if first() is not module or place != caller.f_lasti:
                return True
        self._began = weakref.ref(model), weakref.ref(module), caller.f_lasti
        return False


def _outermost(frame: FrameType | None) -> nn.Module | None:
    """The module whose `forward` this frame is in, or the one whose `forward` has called that by name."""
    found = None
    while frame is not None and frame.f_code.co_name == "forward" and frame.f_code.co_argcount:
        own = frame.f_locals.get(frame.f_code.co_varnames[0])
        if not isinstance(own, nn.Module):
            break
        found, frame = own, frame.f_back
    return found
