"""Tensors that hold a value of their own, and putting another one there."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

SMALL_BYTES = 2**20
"""Up to this size tensors are copied before each call that may change them."""

_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


class Value(NamedTuple):
    """What a tensor held."""

    version: int
    copy: torch.Tensor


def is_plain(value: Any) -> bool:
    if type(value) is not torch.Tensor or value.layout is not torch.strided or value.is_nested:
        return False
    return not _is_wrapped(value)


def is_small(value: Any) -> bool:
    """And nothing that is learned."""
    if not is_plain(value) or value.requires_grad:
        return False
    return bool(value.numel() * value.element_size() <= SMALL_BYTES)


def put_value(tensor: torch.Tensor | None, value: torch.Tensor) -> None:
    """Into the memory of a statistic. Not counted as a change: a graph that is still to be differentiated may
    have saved it, and goes on."""
    if tensor is not None and not tensor.is_inference() and tensor.shape == value.shape:
        with _unsafe_preserve_version_counter(tensor):
            tensor.copy_(value)
