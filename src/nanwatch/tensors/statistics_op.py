# mypy: disable-error-code="no-untyped-call"
"""The torch op `nanwatch::statistics(Tensor x) -> Tensor`: seven numbers of x, left on its device.

The result is a float64 vector [nan, +inf, -inf, lowest finite, highest finite, sum, sum of squares], the sums
over finite values. It never waits for the device, so it may stand inside `torch.compile(fullgraph=True)` and
inside the capture of a CUDA graph. No gradient flows through it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nanwatch.tensors import cpu, cuda
from nanwatch.tensors.plain_dispatch import plain_dispatch

FIELDS = ("nan", "posinf", "neginf", "min", "max", "sum", "sumsq")

_library = torch.library.Library("nanwatch", "FRAGMENT")
_library.define("statistics(Tensor x) -> Tensor")


def statistics(x: Tensor) -> Tensor:
    """The op, by its Python name."""
    vector: Tensor = torch.ops.nanwatch.statistics(x)
    return vector


def _on_cpu(x: Tensor) -> Tensor:
    with plain_dispatch():
        return cpu.statistics(x.detach())


def _on_cuda(x: Tensor) -> Tensor:
    with plain_dispatch():
        return cuda.statistics(x.detach())


def _shape_only(x: Tensor) -> Tensor:
    return x.new_empty(len(FIELDS), dtype=torch.float64)


_library.impl("statistics", _on_cpu, "CPU")
_library.impl("statistics", _on_cuda, "CUDA")
_library.impl("statistics", torch.library.fallthrough_kernel, "Autograd")
torch.library.register_fake("nanwatch::statistics", _shape_only, lib=_library)
