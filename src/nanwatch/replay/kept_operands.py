"""Copies of what an op was given, for the repro of a birth."""

from __future__ import annotations

from typing import Any

import torch

from nanwatch.records import Numbers
from nanwatch.replay.op_call import OpCall
from nanwatch.replay.op_facts import output_tensors

COPY_BYTES = 64 * 2**20
"""Operands up to this size are copied."""


def copy_unless_large(tensor: torch.Tensor) -> torch.Tensor | None:
    """A copy outside of autograd; None for a tensor of more than COPY_BYTES."""
    if tensor.numel() * tensor.element_size() > COPY_BYTES:
        return None
    with torch.no_grad():
        return tensor.detach().clone()


def kept_call(call: OpCall) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """The op and copies of its operands as they were before it ran; None when one of them is too large."""
    names = [name for name, _ in zip(call.facts.names, call.args, strict=False)]
    kept_args = tuple(_keep_value(n, v, call.before) for n, v in zip(names, call.args, strict=True))
    kept_kwargs = {n: _keep_value(n, v, call.before) for n, v in call.kwargs.items()}
    given = output_tensors([*call.args, *call.kwargs.values()])
    whole = len(given) == len(output_tensors([*kept_args, *kept_kwargs.values()]))
    return (call.function, kept_args, kept_kwargs) if whole else None


def _keep_value(name: str, value: Any, before: dict[str, tuple[Numbers, Any]]) -> Any:
    if isinstance(value, torch.Tensor):
        return before[name][1] if name in before else copy_unless_large(value)
    if isinstance(value, (list, tuple)):
        return [_keep_value(f"{name}[{i}]", item, before) for i, item in enumerate(value)]
    return value
