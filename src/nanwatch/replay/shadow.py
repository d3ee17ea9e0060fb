"""Silent damage: an overflow that a later op turns into a harmless-looking zero.

`rsqrt(inf)` is 0 and `x / inf` is 0: a norm whose mean square left the range of float16 returns zeros, and no
NaN ever shows it. So from the op that overflowed on, the same values are also computed in float64; where an
infinity has become exactly 0 and the true value is a number that the dtype can hold, the result is wrong.
An infinity whose limit is the right answer (`sigmoid`, `tanh`, `exp(-inf)`, `clamp`, a softmax mask) is not.
"""

from __future__ import annotations

from typing import Any

import torch

from nanwatch.replay.op_call import OpCall
from nanwatch.replay.op_facts import output_tensors
from nanwatch.watching.storages import Storages

SELECTS = (
    "where",
    "masked_fill",
    "nan_to_num",
    "clamp",
    "index_put",
    "scatter",
    "maximum",
    "minimum",
    "copy",
)
"""Ops by which a program discards values on purpose."""

MOST_VALUES = 2**24
HALVES = (torch.float16, torch.bfloat16, torch.float32)


class Shadows:
    """The float64 truth behind values that overflowed."""

    def __init__(self) -> None:
        self._truth: Storages[torch.Tensor] = Storages()

    def born(self, function: Any, args: Any, kwargs: Any, results: list[torch.Tensor]) -> bool:
        """An op made infinities out of finite values: was it only the range of the dtype?"""
        truth = self._compute(function, args, kwargs)
        range_only = False
        for result, true in zip(results, truth, strict=False):
            if true.shape == result.shape and bool(torch.isfinite(true).all()):
                self._truth.put(result, true)
                range_only = True
        return range_only

    def only_range(self, call: OpCall, born: torch.Tensor) -> bool:
        """The same of values that were made beside others: are they numbers in a wider dtype?"""
        truth = self._compute(call.function, call.args, call.kwargs)
        alike = [true for true in truth if true.shape == born.shape]
        return bool(alike) and all(bool(torch.isfinite(true)[born].all()) for true in alike)

    def follow(self, function: Any, args: Any, kwargs: Any, results: list[torch.Tensor]) -> bool:
        """Carry the truth through an op; True when the op has silently made a wrong zero."""
        if not self._truth or not self._concerns((args, kwargs)):
            return False
        truth = self._compute(function, args, kwargs)
        wrong = False
        for result, true in zip(results, truth, strict=False):
            if true.shape != result.shape or not result.is_floating_point():
                continue
            if bool(torch.isfinite(result).all()):
                wrong = wrong or (not _selects(function) and _wrong_zero(result, true))
            else:
                self._truth.put(result, true)
        return wrong

    def _concerns(self, value: Any) -> bool:
        return any(
            self._true_of(t) is not None for t in output_tensors(list(value[0]) + list(value[1].values()))
        )

    def _true_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        true = self._truth.get(tensor)
        return true if true is not None and true.shape == tensor.shape else None

    def _compute(self, function: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
        """The op in float64, on the truth where there is one. Nothing when that cannot be done."""
        size = sum(t.numel() for t in output_tensors(list(args) + list(kwargs.values())))
        random = torch.Tag.nondeterministic_seeded in function.tags
        if size > MOST_VALUES or random or function._schema.is_mutable:
            return []
        try:
            with torch.no_grad():
                wide = [self._wide(a) for a in args]
                return output_tensors(function(*wide, **{k: self._wide(v) for k, v in kwargs.items()}))
        except Exception:
            return []

    def _wide(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            true = self._true_of(value)
            if true is not None:
                return true
            return value.detach().double() if value.is_floating_point() else value
        if isinstance(value, (list, tuple)):
            return [self._wide(v) for v in value]
        return torch.float64 if value in HALVES else value


def _selects(function: Any) -> bool:
    name = function._schema.name.split("::")[-1]
    return any(word in name for word in SELECTS)


def _wrong_zero(result: torch.Tensor, true: torch.Tensor) -> bool:
    smallest = torch.finfo(result.dtype).tiny
    return bool(((result == 0) & (true.abs() >= smallest) & torch.isfinite(true)).any())
