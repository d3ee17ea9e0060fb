"""Recording what the program does outside any module: few calls, so recording them always is cheap.

A torch function mode that stands aside while a root module, a backward or an optimizer runs, so that
nothing inside them ever sees it (a mode on the stack would switch off fused paths such as that of
nn.MultiheadAttention).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode

from nanwatch.watching.beside_modes import beside_modes
from nanwatch.watching.pretending import pretending
from nanwatch.watching.torch_functions import GETTERS, facts_of

PLAIN_TYPES = frozenset((torch.Tensor, torch.nn.Parameter, type(None)))

_push = torch._C._push_on_torch_function_stack
_pop = torch._C._pop_torch_function_stack
_depth = torch._C._len_torch_function_stack
_at = torch._C._get_function_stack_at
_dispatch_modes = torch._C._len_torch_dispatch_stack
_unheard = torch._C.DisableTorchFunction


class Listener(Protocol):
    """Who wants to know of the calls."""

    def called(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], frame: Any
    ) -> Any: ...

    def returned(self, entry: Any, outputs: Any) -> None: ...

    def failed(self, entry: Any, error: BaseException) -> None: ...


class OutsideMode(TorchFunctionMode):
    """On while the program runs its own code; `stand_aside` and `come_back` bracket everything else."""

    goes_along = False
    """Not into tasks that are handed to other threads: it keeps one tape, in the order of one thread."""

    def __init__(self, listener: Listener, give_up: Callable[[BaseException], None]) -> None:
        super().__init__()
        self._listener = listener
        self._give_up = give_up
        self._on_stack = False
        self.listening = False
        self.handling = False

    def come_back(self) -> None:
        """Listen from now on. Cheap, and harmless when already listening."""
        self.listening = True
        if not self._on_stack and not self.handling:
            self._on_stack = True  # before: a signal may come right after the call
            _push(self)

    def stand_aside(self) -> None:
        """Leave the stack, or, when the program has put a mode of its own on top, only stop listening."""
        self.listening = False
        if self._on_stack and not self.handling:
            depth = _depth()
            if depth == 1 or (depth and _at(depth - 1) is self):
                self._on_stack = False
                _pop()

    def look_again(self) -> None:
        """Whether it is on the stack, after an interruption at any place."""
        if not self.handling:
            self._on_stack = any(_at(place) is self for place in range(_depth()))

    def leave_for_good(self) -> bool:
        """Off the stack, wherever on it we are; False while a call is being handled, since torch will put
        this mode back after it."""
        self.listening = False
        if not self._on_stack:
            return True
        if self.handling:
            return False
        above = []
        while _depth():
            mode = _pop()
            if mode is self:
                break
            above.append(mode)
        for mode in reversed(above):
            _push(mode)
        self._on_stack = False
        return True

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling():  # by this very name, for Dynamo
            return function(*args, **kwargs)
        if function is _profiler_enters or function is _profiler_leaves or function in GETTERS:
            return function(*args, **kwargs)
        if not self.listening or _frame_callback() not in NOT_COMPILED or _in_transform():
            return self._let_through(function, args, kwargs)
        if _jit_tracing() or pretending():
            return self._let_through(function, args, kwargs)
        self.handling = True  # torch itself has taken this mode off the stack until we return
        try:
            try:
                if types:  # a subclass of the program's must not hear what we ask of its tensors
                    with _unheard():
                        entry = beside_modes(self._listener.called, function, args, kwargs, sys._getframe(1))
                elif _dispatch_modes():
                    entry = beside_modes(self._listener.called, function, args, kwargs, sys._getframe(1))
                else:
                    entry = self._listener.called(function, args, kwargs, sys._getframe(1))
            except Exception as own:
                entry = None
                self._give_up(own)
            try:
                outputs = function(*args, **kwargs)
            except Exception as error:
                self._listener.failed(entry, error)
                raise
            if entry is not None:
                try:
                    if types or type(outputs) not in PLAIN_TYPES or _dispatch_modes():
                        with _unheard():
                            beside_modes(self._listener.returned, entry, outputs)
                    else:
                        self._listener.returned(entry, outputs)
                except Exception as own:
                    self._give_up(own)
            return outputs
        finally:
            self.handling = False

    def hand_over(
        self, original: Callable[..., Any], function: Any, relevant: Any, args: tuple[Any, ...], kwargs: Any
    ) -> Any:
        """What torch's `handle_torch_function` does, `original`, where it has nobody to ask but this mode."""
        alone = self._on_stack and _depth() == 1 and _at(0) is self  # torch may have taken this mode off
        if not alone or not PLAIN_TYPES.issuperset(map(type, relevant)):
            return original(function, relevant, *args, **kwargs)
        try:
            _pop()
            facts = facts_of(function)
            if facts.quiet and not facts.hands_out:
                return self._let_through(function, args, kwargs)
            return self.__torch_function__(function, (), args, kwargs)
        finally:
            _push(self)

    def _let_through(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        was, self.handling = self.handling, True
        try:
            return function(*args, **kwargs)
        finally:
            self.handling = was


_profiler_enters = torch.ops.profiler._record_function_enter_new
_profiler_leaves = torch.ops.profiler._record_function_exit._RecordFunction
"""An optimizer brackets each of its steps with these: to find them in a set takes longer than the call."""

_jit_tracing = torch._C._get_tracing_state
_frame_callback = torch._C._dynamo.eval_frame.get_eval_frame_callback
_in_transform = torch._C._functorch.peek_interpreter_stack
"""What a transform of torch.func does inside is done on wrapped tensors, which mean nothing afterwards."""

NOT_COMPILED = (None, False)
"""Else a function under torch.compile is running: its calls are the compiler's, not the program's."""
