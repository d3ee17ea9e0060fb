"""Whether torch only works out what a program would do: what is called then has no values to look at, and
what we call would end up in a graph."""

from __future__ import annotations

from collections.abc import Callable

import torch

_depth = torch._C._len_torch_dispatch_stack
_mode_of = torch._C._get_dispatch_mode
_kinds = torch._C._TorchDispatchModeKey
_FAKE, _PROXY, _FUNCTIONAL = _kinds.FAKE, _kinds.PROXY, _kinds.FUNCTIONAL

_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)


def pretending() -> bool:
    """Whether fake tensors, proxies or functionalization are on in this thread, or a model is being exported.
    Asked at every call: without any dispatch mode it costs two calls of C."""
    if _depth() and not (_mode_of(_FAKE) is _mode_of(_PROXY) is _mode_of(_FUNCTIONAL) is None):
        return True
    return _exporting()
