"""The step on the CPU instead of on its device: with its own values, or, where the device can no longer be
read, with stand-ins of the same shape."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from nanwatch.watching.tape import map_tensors


def stand_in(tensor: torch.Tensor) -> torch.Tensor:
    """Zeros in the place of what lies on a device; what lies on the host is as it was."""
    if tensor.is_cpu:
        return tensor
    zeros = torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
    return zeros.requires_grad_(tensor.requires_grad)


@contextlib.contextmanager
def held_on_cpu(
    tensors: Iterable[torch.Tensor], value_of: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[None]:
    """Weights and buffers on the CPU for a while; afterwards they have their own memory back."""
    memory = [(t, t.data) for t in tensors]
    try:
        for tensor, data in memory:
            tensor.data = value_of(data)
        yield
    finally:
        for tensor, data in memory:
            tensor.data = data


class OnCpu(TorchFunctionMode):
    """Whatever device the program asks for, it gets the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = "cpu"
        name = getattr(func, "__name__", "")
        if name == "cuda" and args and isinstance(args[0], torch.Tensor):
            return args[0]
        if name == "to":
            args = tuple(_cpu(a) for a in args)
        return func(*args, **kwargs)


class OnCpuWithStandIns(OnCpu):
    """And what it holds on a device, in whatever way, is stood in for."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with torch._C.DisableTorchFunction():
            args, kwargs = map_tensors(args, stand_in), map_tensors(kwargs or {}, stand_in)
        return super().__torch_function__(func, types, args, kwargs)


def _cpu(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, (str, torch.device)) else value
