"""Every call of an nn.Module passes here: the outermost is the root; the rest pay one attribute read.

torch's global forward hooks would cost each module call more than twice as much, make torch.compile
warn, and be traced into compiled graphs; so the one `nn.Module.__call__` is wrapped instead, in a way
that Dynamo folds away.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from nanwatch.watching.worker_threads import handed
from nanwatch.watching.wrapping import Wrappers, still_wanted

OF_TORCHS_OWN = ("_compiled_call_impl", "_call_impl")
"""The names in torch's own `__call__`, which does no more than to call the one that is there: what knows that
can stand in its place, and an inner call goes through as many functions as without us."""


class Scope:
    """Which module is running, as a stack of the modules that were called, for each thread."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    @property
    def modules(self) -> list[nn.Module]:
        """Those that this thread itself has called."""
        found: list[nn.Module] = self._of_thread.__dict__.setdefault("modules", [])
        return found

    def follow(
        self, original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        modules = self.modules
        modules.append(module)
        try:
            return original(module, *args, **kwargs)
        finally:
            modules.pop()

    def now(self) -> tuple[nn.Module, ...]:
        """From the root to the innermost, also in a thread that was handed work from within a module."""
        return (*handed().modules, *self.modules)


Handler = Callable[[Callable[..., Any], nn.Module, tuple[Any, ...], dict[str, Any]], Any] | Scope
"""A scope only notes which modules run."""


class ModuleCalls:
    """Hands module calls to `handler`; None lets them through."""

    def __init__(self) -> None:
        self.handler: Handler | None = None
        self._wrappers = Wrappers()
        self._for_dynamo: tuple[Any, Any] | None = None
        """Our `__call__`, which it may know for torch's own, and the one that was there."""

    def install(self) -> None:
        original: Any = nn.Module.__call__
        plain = original.__code__.co_names == OF_TORCHS_OWN if hasattr(original, "__code__") else False
        compiling = torch.compiler.is_dynamo_compiling
        tracing = torch._C._get_tracing_state
        calls = self

        def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if compiling():
                return original(module, *args, **kwargs)
            handler = calls.handler
            if handler is None or tracing():
                if plain and module._compiled_call_impl is None:
                    return module._call_impl(*args, **kwargs)
                return original(module, *args, **kwargs)
            if not isinstance(handler, Scope):
                return handler(original, module, args, kwargs)
            modules = handler.modules
            modules.append(module)
            try:  # as `handler.follow` does it, and again with no function more
                if plain and module._compiled_call_impl is None:
                    return module._call_impl(*args, **kwargs)
                return original(module, *args, **kwargs)
            finally:
                modules.pop()

        self._wrappers.put(nn.Module, "__call__", __call__)
        self._for_dynamo = (__call__, original)
        if plain:
            _exchange_for_dynamo(original, __call__)

    def uninstall(self) -> None:
        self.handler = None
        self._wrappers.take_off()
        if self._for_dynamo is not None:
            ours, original = self._for_dynamo
            _exchange_for_dynamo(ours, still_wanted(original))
            self._for_dynamo = None


def _exchange_for_dynamo(known: Any, new: Any) -> None:
    """Where calling a module means what Dynamo knows it to mean, it goes straight to `forward`, with fewer
    guards: it may take ours for torch's own. (Where it is loaded later, it does so by itself.)"""
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        module = sys.modules.get(name)
        if module is not None and getattr(module, "unpatched_nn_module_call", None) is known:
            vars(module)["unpatched_nn_module_call"] = new


def path_of(modules: tuple[nn.Module, ...]) -> str | None:
    """The path of the innermost of `modules` from the outermost; None for no module at all."""
    if not modules:
        return None
    parts: list[str] = []
    parent = modules[0]
    for child in modules[1:]:
        name = next((name for name, module in parent.named_modules() if module is child), None)
        if name is None:
            continue  # a module kept outside the tree, such as in a plain list
        parts += [part for part in name.split(".") if part and part != "_orig_mod"]
        parent = child
    return ".".join(parts)
