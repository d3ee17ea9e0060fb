"""Where nanwatch touches torch: every tap, put on by `install` and taken off by `uninstall`.

torch's own global hooks serve where they exist (optimizer steps). Elsewhere one public function is
wrapped: the wrapper calls the original with the same arguments and returns what it returned.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer
from torch.optim import optimizer as optim_module
from torch.optim.swa_utils import AveragedModel

from nanwatch.watching import warned_places
from nanwatch.watching.functional import follow_functional
from nanwatch.watching.grad_scalers import follow_scalers
from nanwatch.watching.pretending import pretending
from nanwatch.watching.shield import Shield
from nanwatch.watching.torchscript import Builtins, one_frame_further
from nanwatch.watching.worker_threads import WorkerThreads
from nanwatch.watching.wrapping import Wrappers

if TYPE_CHECKING:
    from nanwatch.watching.watcher import Watcher


_jit_tracing, _this_thread = torch._C._get_tracing_state, threading.get_ident


class Following:
    """The taps of one watcher."""

    def __init__(self, program: Watcher, shield: Shield) -> None:
        self._program = program
        self._shield = shield
        self._home = threading.get_ident()
        self._wrappers = Wrappers()
        self._builtins = Builtins()
        self._workers = WorkerThreads()
        self._handles: list[Any] = []
        self._installed = False

    def install(self) -> None:
        self._installed = True
        _installed.add(self)
        self._follow_optimizers()
        self._follow_averages()
        self._follow_backward()
        self._follow_functions()
        self._follow_clipping()
        self._follow_compiled_functions()
        self._follow_torchscript()
        self._follow_arrivals()
        if warned_places.NAME in vars(warnings):
            self._wrap(warnings, warned_places.NAME, warned_places.with_their_own_places)
        follow_scalers(self._wrap, self._ours, self._shield.run, self._program.scaling)
        follow_functional(self._wrap, self._ours, self._shield.run, self._program)
        self._workers.install()

    def uninstall(self) -> None:
        self._installed = False
        _installed.discard(self)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._wrappers.take_off()
        self._builtins.forget()
        self._workers.uninstall()

    def forked(self) -> None:
        self._shield.broken = True  # a worker process: watched by nobody, and nothing to say
        self._program.close()

    def _wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        self._wrappers.put(owner, name, make(owner.__dict__[name]))

    def _ours(self) -> bool:
        """Whether a call is the program's own, on the thread that is watched."""
        if not self._installed or torch.compiler.is_dynamo_compiling():  # by this very name, for Dynamo
            return False
        shield = self._shield
        if shield.busy or shield.broken or _this_thread() != self._home:
            return False
        return _jit_tracing() is None and not pretending()  # what traces would record what we do

    def _follow_optimizers(self) -> None:
        run, updates = self._shield.run, self._program.updates

        def before(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
            if not self._ours():
                return None
            if optimizer._optimizer_step_pre_hooks:  # they may change the gradients: come after them
                _after_the_last(optimizer._optimizer_step_pre_hooks, begins)
                return None
            return run(updates.begins, optimizer, args, kwargs, sys._getframe(1))

        def begins(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
            if not self._ours():
                return None
            return run(updates.begins, optimizer, args, kwargs, sys._getframe(2))

        def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if self._ours():
                run(updates.done, optimizer)

        self._handles.append(optim_module.register_optimizer_step_pre_hook(before))
        self._handles.append(optim_module.register_optimizer_step_post_hook(after))

        def make_init(original: Any) -> Any:
            def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:
                original(optimizer, *args, **kwargs)
                if self._ours():
                    run(updates.made, optimizer)

            return __init__

        self._wrap(Optimizer, "__init__", make_init)

        program = self._program

        def make_zero_grad(original: Any) -> Any:
            def zero_grad(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                if not self._ours():
                    return original(optimizer, *args, **kwargs)
                run(program.quiet_begins)
                try:
                    return original(optimizer, *args, **kwargs)
                finally:
                    program.now.zeroed.add(id(optimizer))
                    run(program.quiet_done)

            return zero_grad

        self._wrap(Optimizer, "zero_grad", make_zero_grad)

        def make_state_dict(original: Any) -> Any:
            def state_dict(*args: Any, **kwargs: Any) -> Any:
                if self._ours():
                    run(updates.late.settle)
                return original(*args, **kwargs)

            return state_dict

        self._wrap(Optimizer, "state_dict", make_state_dict)

    def _follow_averages(self) -> None:
        run, updates = self._shield.run, self._program.updates

        def make_update_parameters(original: Any) -> Any:
            def update_parameters(average: Any, *args: Any, **kwargs: Any) -> Any:
                result = original(average, *args, **kwargs)
                if self._ours():
                    run(updates.averaged, average)
                return result

            return update_parameters

        self._wrap(AveragedModel, "update_parameters", make_update_parameters)

    def _follow_functions(self) -> None:
        """Those that torch has in Python ask for modes through a function of torch's that takes longer than
        recording them does."""
        outside = self._program.outside

        def make(original: Any) -> Any:
            def handle_torch_function(function: Any, relevant: Any, *args: Any, **kwargs: Any) -> Any:
                if self._ours():
                    function = _as_torch_has_it(function, sys._getframe(1))
                    return outside.hand_over(original, function, relevant, args, kwargs)
                return original(function, relevant, *args, **kwargs)

            return handle_torch_function

        for module in (torch.nn.functional, torch.functional, torch._tensor):
            if "handle_torch_function" in vars(module):
                self._wrap(module, "handle_torch_function", make)

    def _follow_backward(self) -> None:
        run, program = self._shield.run, self._program

        def make_backward(original: Any) -> Any:
            def backward(*args: Any, **kwargs: Any) -> Any:
                if not self._ours():
                    return original(*args, **kwargs)
                token = run(program.backwards.begins, original, args, kwargs, sys._getframe(1))
                try:
                    result = original(*args, **kwargs)
                except BaseException:
                    run(program.backwards.done, token, False)
                    raise
                run(program.backwards.done, token)
                return result

            return backward

        self._wrap(torch.autograd, "backward", make_backward)

        def make_grad(original: Any) -> Any:
            def grad(*args: Any, **kwargs: Any) -> Any:
                if not self._ours():
                    return original(*args, **kwargs)
                token = run(program.backwards.grad_begins)
                try:
                    gradients = original(*args, **kwargs)
                finally:
                    run(program.backwards.grad_ends, token)
                run(program.backwards.grad_done, gradients, args[0] if args else kwargs.get("outputs"))
                return gradients

            return grad

        self._wrap(torch.autograd, "grad", make_grad)

        def make_apply(original: Any) -> Any:
            plain = original.__func__

            def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
                if not self._ours():
                    return plain(cls, *args, **kwargs)
                token = run(program.apply_begins, cls.apply, args, kwargs, sys._getframe(1))
                try:
                    outputs = plain(cls, *args, **kwargs)
                except BaseException:
                    run(program.apply_done, token, None)
                    raise
                run(program.apply_done, token, outputs)
                return outputs

            return classmethod(apply)

        self._wrap(torch.autograd.Function, "apply", make_apply)

    def _follow_compiled_functions(self) -> None:
        """A function under torch.compile, called outside any module, is one call on the tape."""
        run, program = self._shield.run, self._program

        def followed(function: Any) -> Any:
            if isinstance(function, torch.nn.Module) or not callable(function):
                return function

            @functools.wraps(function)
            def compiled(*args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_dynamo_compiling() or not self._ours():
                    return function(*args, **kwargs)
                token = run(program.compiled_begins, function, args, kwargs, sys._getframe(1))
                try:
                    outputs = function(*args, **kwargs)
                except BaseException:
                    run(program.compiled_done, token, None)
                    raise
                run(program.compiled_done, token, outputs)
                return outputs

            return compiled

        def make_compile(original: Any) -> Any:
            def compile(model: Any = None, **options: Any) -> Any:
                result = original(model, **options)
                if model is None:
                    return lambda function: followed(result(function))
                return followed(result)

            return compile

        self._wrap(torch, "compile", make_compile)

    def _follow_torchscript(self) -> None:
        """TorchScript's interpreter cannot run under a dispatch mode: from its first use on, no audit."""
        run, program = self._shield.run, self._program

        def make_script(original: Any) -> Any:
            counted = one_frame_further(original)

            def script(*args: Any, **kwargs: Any) -> Any:
                if self._ours():
                    run(program.torchscript_begins)
                args, kwargs = counted(args, kwargs)
                return original(*args, **kwargs)

            return script

        for name in ("trace", "script", "load", "trace_module", "freeze"):
            self._wrap(torch.jit, name, make_script)
        for name in ("grad", "backward"):
            wrapper = torch.autograd.__dict__[name]
            self._builtins.know(wrapper, wrapper.__wrapped__)

    def _follow_clipping(self) -> None:
        run, program = self._shield.run, self._program

        def make_clip(original: Any) -> Any:
            def clip_grad_norm_(parameters: Any, *args: Any, **kwargs: Any) -> Any:
                if not self._ours():
                    return original(parameters, *args, **kwargs)
                if not isinstance(parameters, torch.Tensor):
                    parameters = list(parameters)
                run(program.quiet_begins)
                try:
                    norm = original(parameters, *args, **kwargs)
                finally:
                    run(program.quiet_done)
                again = functools.partial(original, parameters, *args, **kwargs)
                run(program.updates.clips.clipped, parameters, norm, again)
                return norm

            return clip_grad_norm_

        def make_clip_by_value(original: Any) -> Any:
            def clip_grad_value_(parameters: Any, *args: Any, **kwargs: Any) -> Any:
                if not self._ours():
                    return original(parameters, *args, **kwargs)
                if not isinstance(parameters, torch.Tensor):
                    parameters = list(parameters)
                again = functools.partial(original, parameters, *args, **kwargs)
                run(program.updates.clips.by_value_begins, parameters, again)
                run(program.quiet_begins)
                try:
                    return original(parameters, *args, **kwargs)
                finally:
                    run(program.quiet_done)

            return clip_grad_value_

        import torch.nn.utils.clip_grad as clip_grad

        self._wrap(clip_grad, "clip_grad_norm_", make_clip)
        self._wrap(torch.nn.utils, "clip_grad_norm_", make_clip)
        self._wrap(clip_grad, "clip_grad_value_", make_clip_by_value)
        self._wrap(torch.nn.utils, "clip_grad_value_", make_clip_by_value)

    def nothing_clipped(
        self, parameters: list[torch.Tensor], by_value: bool, again: Callable[[], Any]
    ) -> bool:
        run, clips = self._shield.run, self._program.updates.clips
        if not self._ours():
            return False
        if by_value:
            run(clips.by_value_begins, parameters, again)
        else:
            run(clips.not_clipped, again)
        return True

    def _follow_arrivals(self) -> None:
        """The doors through which tensors come in without any op: loaders, numpy, files."""
        from torch.utils.data import dataloader

        run, program = self._shield.run, self._program

        def make_arrival(original: Any) -> Any:
            def arrival(*args: Any, **kwargs: Any) -> Any:
                value = original(*args, **kwargs)
                if self._ours():
                    run(program.arrivals.came, value, sys._getframe(1))
                return value

            return arrival

        def make_batch(original: Any) -> Any:
            def batch(loader: Any) -> Any:
                value = original(loader)
                if self._ours():
                    run(program.batch_arrived, loader, value, sys._getframe(1))
                return value

            return batch

        self._wrap(dataloader._BaseDataLoaderIter, "__next__", make_batch)
        for name in ("from_numpy", "frombuffer", "load", "from_dlpack"):
            if name in torch.__dict__:
                self._wrap(torch, name, make_arrival)


_installed: weakref.WeakSet[Following] = weakref.WeakSet()


def nothing_clipped(parameters: list[torch.Tensor], by_value: bool, again: Callable[[], Any]) -> bool:
    """Because a gradient is bad: without what made it bad, `again` clips. Whether anybody is watching."""
    heard = [following.nothing_clipped(parameters, by_value, again) for following in list(_installed)]
    return any(heard)


_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_own: dict[CodeType, Any] = {}


def _as_torch_has_it(function: Any, asking: FrameType) -> Any:
    """A function of torch's asks by its name whether a mode wants the call. Where the program has put a
    wrapper in its place, that one is under way already: what is asked for is the function inside."""
    code = getattr(function, "__code__", None)
    if code is None or code is asking.f_code or code.co_filename.startswith(_TORCH):
        return function
    if asking.f_code.co_freevars or not asking.f_code.co_filename.startswith(_TORCH):
        return function
    found = _own.get(asking.f_code)
    if found is None:
        holders = (f for f in gc.get_referrers(asking.f_code) if isinstance(f, FunctionType))
        found = _own[asking.f_code] = next((f for f in holders if f.__code__ is asking.f_code), function)
    return found


def _after_the_last(hooks: dict[int, Any], then: Callable[..., Any]) -> None:
    """In the place of the last hook, once: one behind it would be in its way if it removes itself."""
    key = next(reversed(hooks))
    hook = getattr(hooks[key], "last", hooks[key])  # where another hook raised, ours is there still

    def both(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        hooks[key] = hook
        result = hook(optimizer, args, kwargs)
        if isinstance(result, tuple) and len(result) == 2:
            args, kwargs = result
        return then(optimizer, args, kwargs) or result

    both.last = hook  # type: ignore[attr-defined]
    hooks[key] = both


def _forked() -> None:
    for following in list(_installed):
        following.forked()


os.register_at_fork(after_in_child=_forked)
