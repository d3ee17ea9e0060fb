"""The step again on the CPU: a fault of a device, or of a kernel of that device, is not there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes

NAME = "on-cpu"
TITLE = Text("running the step on the CPU", "在 CPU 上运行这一步")
FINITE = Text("runs finite on the CPU", "在 CPU 上结果有限")
FAILS = Text("fails on the CPU too", "在 CPU 上也失败")
LARGEST = 2**32
"""Bytes of weights and buffers that are brought over."""


def applies(case: Case) -> bool:
    tensors = _state(case)
    size = sum(t.numel() * t.element_size() for t in tensors)
    return any(t.device.type not in ("cpu", "meta") for t in tensors) and size <= LARGEST


def run(case: Case) -> Outcome:
    with _brought_over(_state(case)):
        finite = runs_finite(case.rerun(Changes(around=_OnCpu, outside=lambda t: t.cpu())))
    if finite is None:
        return Outcome(None, "")
    return Outcome(finite, (FINITE if finite else FAILS).say())


def _state(case: Case) -> list[torch.Tensor]:
    found = [t for m in case.models for t in [*m.parameters(), *m.buffers()]]
    return list({id(t): t for t in found if type(t) in (torch.Tensor, torch.nn.Parameter)}.values())


@contextlib.contextmanager
def _brought_over(tensors: list[torch.Tensor]) -> Iterator[None]:
    """Weights and buffers on the CPU for a while; afterwards they have their own memory back."""
    memory = [(t, t.data) for t in tensors]
    try:
        for tensor, data in memory:
            tensor.data = data.cpu()
        yield
    finally:
        for tensor, data in memory:
            tensor.data = data


class _OnCpu(TorchFunctionMode):
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


def _cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and value.startswith("cuda") else value
