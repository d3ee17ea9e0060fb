"""Every op that this thread calls is heard here, and neither torch nor the program can tell.

A TorchDispatchMode can be told: functions of ATen ask whether one is on (`isTensorSubclassLike`) and then
compute in another way, and what an op calls in turn is not cast by autocast while a mode handles it. Either
changes last bits. So each op gets a kernel of ours at a dispatch key that nothing else uses. A thread is led
there only while it has a listener; what comes after is called as it would have been without us.
"""

from __future__ import annotations

import sys
import threading
from functools import cached_property
from types import FrameType
from typing import Any, Protocol

import torch

from nanwatch.tensors.own_key import JUST_OWN, NAME, OWN_KEY

LEFT_OUT = frozenset(("aten::detach", "aten::alias"))
"""torch makes parameters and subclasses of what these return, which must not be known to Python before. They
only hand on memory."""

_BELOW = torch._C._dispatch_keyset_full_after(OWN_KEY).remove(torch._C.DispatchKey.PythonDispatcher)
_ABOVE = torch._C._dispatch_keyset_full() - _BELOW - JUST_OWN
_PYTHON = torch._C.DispatchKey.Python

_without: Any = torch._C._ExcludeDispatchKeyGuard
_lead_here = torch._C._dispatch_tls_set_dispatch_key_included
_is_led_here = torch._C._dispatch_tls_is_dispatch_key_included
_is_left_out = torch._C._dispatch_tls_is_dispatch_key_excluded
_no_functions_heard: Any = torch._C.DisableTorchFunction


class Listener(Protocol):
    """Who hears of the ops. What is returned when one begins comes back when it has ended; None: no more of
    this one."""

    def op_begins(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any: ...

    def op_raised(self, call: Any, error: Exception) -> None: ...

    def op_ended(self, call: Any, outputs: Any) -> None: ...


_of_thread = threading.local()


def listener() -> Any:
    """Who hears the ops of this thread, or None."""
    return getattr(_of_thread, "listener", None)


def tell(new: Listener) -> None:
    """From now on `new` hears the ops of this thread."""
    _give_kernels_to_new_ops()
    _of_thread.listener = new
    _lead_here(OWN_KEY, True)


def tell_nobody() -> None:
    _lead_here(OWN_KEY, False)
    _of_thread.listener = None


def is_on() -> bool:
    """Whether ops of this thread are led here."""
    return bool(_is_led_here(OWN_KEY))


class _Kernel:
    """Of one op, at our key."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _op(self) -> Any:
        space, _, name = self._name.partition("::")
        base, _, overload = name.partition(".")
        return getattr(getattr(getattr(torch.ops, space), base), overload or "default")

    @cached_property
    def _tensor_places(self) -> tuple[int, ...]:
        arguments = self._op._schema.arguments
        return tuple(i for i, a in enumerate(arguments) if str(a.type) in ("Tensor", "Optional[Tensor]"))

    def __call__(self, keys: Any, /, *args: Any, **kwargs: Any) -> Any:
        told = listener()
        with _without(JUST_OWN):
            if told is None or _is_left_out(_PYTHON):  # torch works something out, on tensors of its own
                return self._go_on(keys, args, kwargs)
            call = None
            try:
                with _without(_ABOVE):
                    call = told.op_begins(self._op, args, kwargs, sys._getframe(1))
            except RecursionError:  # the program is about as deep as it may go: no room for us
                pass
            try:
                outputs = self._go_on(keys, args, kwargs)
            except Exception as error:
                if call is not None:
                    with _without(_ABOVE):
                        told.op_raised(call, error)
                raise
            try:
                if call is not None:
                    with _without(_ABOVE):
                        told.op_ended(call, outputs)
            except RecursionError:
                pass
            return outputs

    def _go_on(self, keys: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """To the kernel that would have been next."""
        if self._has_number_for_tensor(args):
            with _without(_ABOVE - keys), _no_functions_heard():
                return self._op(*args, **kwargs)
        return self._op.redispatch(keys & _BELOW, *args, **kwargs)

    def _has_number_for_tensor(self, args: tuple[Any, ...]) -> bool:
        """The 2 of `x * 2` is a tensor for the op, and comes here as a number: to go on with `redispatch` it
        would have to be a tensor again, of a kind that only a full call makes."""
        given = len(args)
        return any(i < given and isinstance(args[i], (int, float, complex)) for i in self._tensor_places)


_libraries: dict[str, torch.library.Library] = {}
_heard: set[str] = set()
_defined: tuple[int, int] | None = None


def _give_kernels_to_new_ops() -> None:
    """30 ms at first; then only where the program has defined or loaded others."""
    global _defined
    defined = (len(torch.library._defs), len(torch.ops.loaded_libraries))
    if defined == _defined:
        return
    if not _libraries:
        _let_the_rest_pass()
    for name in set(torch._C._dispatch_get_all_op_names()) - _heard - LEFT_OUT:
        _heard.add(name)
        space = name.partition("::")[0]
        if space not in _libraries:
            _libraries[space] = torch.library.Library(space, "IMPL")
        _libraries[space].impl(name, _Kernel(name), NAME, with_keyset=True)
    _defined = defined


def _let_the_rest_pass() -> None:
    """Ops that we have not met yet, and those of a higher order (`cond`, `flex_attention`): these have their
    keys in Python, and refuse one that they do not know."""
    _libraries["_"] = torch.library.Library("_", "IMPL")
    _libraries["_"].fallback(torch.library.fallthrough_kernel, NAME)
    torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(OWN_KEY)
    for op in torch._ops._higher_order_ops.values():
        op.fallthrough(OWN_KEY)
