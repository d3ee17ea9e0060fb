"""What the tests of the blocks have in common: value and gradient side by side with the plain op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

HALVES = [torch.float16, torch.bfloat16]
DTYPES = [*HALVES, torch.float32, torch.float64]
INF, NAN = float("inf"), float("nan")

quick = settings(max_examples=50, deadline=None)
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
vectors = st.lists(numbers, min_size=1, max_size=12)


def value_and_gradients(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The value, and the gradient in each input of its sum, each entry weighed differently."""
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    value = function(*leaves)
    weights = torch.linspace(0.5, 1.0, value.numel()).to(value).reshape(value.shape)
    gradients = torch.autograd.grad(value, leaves, weights)
    return value.detach(), list(gradients)


def all_finite(function: Callable[..., Tensor], *inputs: Tensor) -> bool:
    value, gradients = value_and_gradients(function, *inputs)
    return bool(value.isfinite().all()) and all(bool(g.isfinite().all()) for g in gradients)


def assert_finite(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    value, gradients = value_and_gradients(function, *inputs)
    assert value.isfinite().all(), value
    for gradient in gradients:
        assert gradient.isfinite().all(), gradient


def assert_is_plain_where_finite(
    block: Callable[..., Tensor], plain: Callable[..., Tensor], *inputs: Tensor, **tolerance: float
) -> None:
    """Finite throughout; and where the plain op's value (gradient) is finite, the same, bit for bit unless a
    tolerance is given. A finite gradient of a value that is not (log below 0) counts for nothing."""
    value, gradients = value_and_gradients(block, *inputs)
    plain_value, plain_gradients = value_and_gradients(plain, *inputs)
    assert value.dtype == plain_value.dtype and value.shape == plain_value.shape
    for mine, other in zip([value, *gradients], [plain_value, *plain_gradients], strict=True):
        assert mine.isfinite().all(), mine
        there = other.isfinite()
        if other.shape == plain_value.shape:
            there = there & plain_value.isfinite()
        tolerance = tolerance or {"rtol": 0.0, "atol": 0.0}
        torch.testing.assert_close(mine[there], other[there], **tolerance)


def assert_near_float64(
    block: Callable[..., Tensor], reference: Callable[..., Tensor], *inputs: Tensor, ulps: float = 4.0
) -> None:
    """Value and gradient within a few roundings of the reference in float64; the larger sets the scale."""
    value, gradients = value_and_gradients(block, *inputs)
    true_value, true_gradients = value_and_gradients(reference, *(t.double() for t in inputs))
    for mine, true in zip([value, *gradients], [true_value, *true_gradients], strict=True):
        limits = torch.finfo(mine.dtype)
        scale = max(t.abs().amax().item() for t in (true, true_value) if t.numel())
        torch.testing.assert_close(
            mine.double(), true, rtol=ulps * limits.eps, atol=ulps * (limits.eps * scale + limits.tiny)
        )


def gradcheck(function: Callable[..., Any], *inputs: Tensor, second: bool = True) -> None:
    leaves = [t.detach().double().requires_grad_() for t in inputs]
    assert torch.autograd.gradcheck(function, leaves)
    if second:
        assert torch.autograd.gradgradcheck(function, leaves, fast_mode=True)


def row(*values: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(values, dtype=dtype)
