"""The taps on torch.func: a transform called outside any module is one call on the tape, and a model called
with other weights than its own is recorded with them.

Inside a transform torch works on wrapped tensors that mean nothing afterwards. `grad`, `grad_and_value` and
`vmap` are followed where torch itself looks their work up, however the program has imported them; the others
by their public names.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch._functorch.apis as apis
import torch._functorch.eager_transforms as transforms
from torch import nn
from torch.nn.utils import stateless

from nanwatch.watching.tape import Entry

if TYPE_CHECKING:
    from nanwatch.watching.module_calls import Handler
    from nanwatch.watching.watcher import Watcher

Wrap = Callable[[Any, str, Callable[[Any], Any]], None]
Run = Callable[..., Any]

compiling = torch.compiler.is_dynamo_compiling
"""Asked first everywhere: Dynamo folds it away, and what lies behind it."""


def follow_functional(wrap: Wrap, ours: Callable[[], bool], run: Run, program: Watcher) -> None:
    """Put the taps on, as far as this version of torch has them."""
    following = _FollowingTransforms(ours, run, program)

    def put(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        if name in vars(owner):
            wrap(owner, name, make)

    for owner, name, derivative in (
        (transforms, "grad_impl", True),
        (transforms, "grad_and_value_impl", True),
        (apis, "vmap_impl", False),
    ):
        put(owner, name, functools.partial(following.followed, derivative=derivative))
    for owner in (transforms, torch.func):
        for name in ("jacrev", "jacfwd", "hessian"):
            put(owner, name, following.transform)
        put(owner, "jvp", functools.partial(following.followed, derivative=True))
        for name in ("vjp", "linearize"):
            put(owner, name, following.gives_a_function)
    put(stateless, "_functional_call", functools.partial(_with_swapped_weights, ours, program))


class _FollowingTransforms:
    """Records the outermost transform; those inside it belong to it."""

    def __init__(self, ours: Callable[[], bool], run: Run, program: Watcher) -> None:
        self._ours = ours
        self._run = run
        self._program = program
        self._derivatives = 0
        self._models = 0
        """Calls of modules inside transforms."""

    def followed(self, function: Any, derivative: bool) -> Any:
        """`function`, each call of it recorded as one."""

        def transformed(*args: Any, **kwargs: Any) -> Any:
            if compiling():
                return function(*args, **kwargs)
            return self._call(function, args, kwargs, derivative, sys._getframe(1))

        return transformed

    def transform(self, original: Any) -> Any:
        """Of a function that makes functions: what it makes is followed."""

        def make(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if compiling():
                return made
            return functools.wraps(made)(self.followed(made, True))

        return make

    def gives_a_function(self, original: Any) -> Any:
        """Of a transform that also returns a function, which belongs to it: that is followed too."""

        def transformed(*args: Any, **kwargs: Any) -> Any:
            if compiling():
                return original(*args, **kwargs)
            result = self._call(original, args, kwargs, False, sys._getframe(1))
            if not isinstance(result, tuple) or len(result) < 2:
                return result
            return (result[0], self.followed(result[1], True), *result[2:])

        return transformed

    def _call(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], derivative: bool, frame: Any
    ) -> Any:
        if not self._ours():
            return function(*args, **kwargs)
        self._derivatives += derivative
        before, models = self._derivatives - derivative, self._models
        token = self._run(self._begins, function, args, kwargs, frame)
        try:
            outputs = function(*args, **kwargs)
        except BaseException:
            self._run(self._done, token, None, False, False)
            raise
        self._run(self._done, token, outputs, self._derivatives > before, self._models > models)
        return outputs

    def _begins(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: Any
    ) -> tuple[Entry, Handler | None] | None:
        program = self._program
        program.transform_begins()
        entry: Entry | None = program.apply_begins(function, args, kwargs, frame)
        if entry is None:
            return None
        entry.functional = True
        was, program.calls.handler = program.calls.handler, self._model_called
        live = program.live
        if live is not None and live.active:
            live.phase = "functional"
        return entry, was

    def _model_called(
        self, original: Any, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._models += 1
        live = self._program.live
        if live is not None and live.active:
            return live.scope.follow(original, module, args, kwargs)
        return original(module, *args, **kwargs)

    def _done(
        self, token: tuple[Entry, Handler | None] | None, outputs: Any, derivative: bool, ran_a_model: bool
    ) -> None:
        if token is None:
            return
        entry, self._program.calls.handler = token
        entry.derivative = derivative
        self._program.apply_done(entry, outputs)
        if derivative and not self._program.updates.optimizers:
            self._program.backwards.grad_done(outputs)  # else it is judged when an optimizer uses it
        elif ran_a_model and not self._program.updates.optimizers:
            self._program.transformed(entry, outputs)


def _with_swapped_weights(ours: Callable[[], bool], program: Watcher, original: Any) -> Any:
    """The weights of a `functional_call` are known to the recorder while it runs."""

    def _functional_call(module: Any, parameters_and_buffers: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling() or not ours():
            return original(module, parameters_and_buffers, *args, **kwargs)
        swaps = program.recorder.swaps
        swaps.append((module, parameters_and_buffers))
        try:
            return original(module, parameters_and_buffers, *args, **kwargs)
        finally:
            swaps.pop()

    return _functional_call
