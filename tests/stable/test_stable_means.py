"""Masked means: x[mask].mean() where there is something, 0 where there is nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stable_checks import (
    DTYPES,
    INF,
    NAN,
    all_finite,
    assert_is_plain_where_finite,
    assert_near_float64,
    gradcheck,
    quick,
    value_and_gradients,
)
from torch import Tensor

from nanwatch import stable

X = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
MASK = torch.tensor([[True, False, True], [False, False, False]])


def by_hand(mask: Tensor, dim: int | None = None):
    return lambda x: (x * mask).sum(dim) / mask.sum(dim)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_left_gives_zero(dtype: torch.dtype) -> None:
    x = X.to(dtype)
    assert not all_finite(by_hand(MASK, -1), x)
    assert_is_plain_where_finite(lambda t: stable.masked_mean(t, MASK, -1), by_hand(MASK, -1), x)
    value, (gradient,) = value_and_gradients(lambda t: stable.masked_mean(t, MASK, -1), x)
    assert value.tolist() == [2.0, 0.0] and (gradient[1] == 0).all() and gradient[0, 1] == 0
    assert stable.masked_mean(x, MASK, -1, otherwise=7.0).tolist() == [2.0, 7.0]
    assert stable.masked_mean(x, MASK & False) == 0


@quick
@given(st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), st.booleans()), min_size=1, max_size=20))
def test_it_is_the_mean_of_what_is_left(pairs: list[tuple[float, bool]]) -> None:
    x, mask = (torch.tensor(side) for side in zip(*pairs, strict=True))
    largest = x.abs().amax().item()
    assert_is_plain_where_finite(
        lambda t: stable.masked_mean(t, mask), lambda t: t[mask].mean(), x, rtol=1e-5, atol=1e-6 * largest
    )


@pytest.mark.parametrize("garbage", [NAN, INF, 1e38])
def test_what_is_masked_has_no_influence(garbage: float) -> None:
    dirty = X.masked_fill(~MASK, garbage)
    value, (gradient,) = value_and_gradients(lambda t: stable.masked_mean(t, MASK), dirty)
    assert value == 2.0 and gradient[~MASK].tolist() == [0.0] * 4
    if garbage != 1e38:
        assert not all_finite(by_hand(MASK), dirty)
    assert stable.masked_loss(dirty, MASK) == 2.0 and stable.masked_loss(dirty, MASK, "sum") == 4.0


def test_a_sum_that_overflows_float16() -> None:
    x = torch.full((4, 500), 300.0, dtype=torch.float16)
    mask = torch.ones(4, 1, dtype=torch.bool)
    assert by_hand(mask.expand(4, 500), -1)(x).isinf().all()
    assert stable.masked_mean(x, mask, -1).tolist() == [300.0] * 4
    assert_near_float64(lambda t: stable.masked_mean(t, mask), lambda t: t.mean(), x)


@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(4,), (3, 1), (2, 1, 4), (2, 3, 4)])
def test_dimensions_and_broadcast_masks(dim, shape: tuple[int, ...]) -> None:
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.3
    full = mask.expand(2, 3, 4)
    mean = stable.masked_mean(x, mask, dim, keepdim=True)
    count = full.sum(dim, keepdim=True)
    assert torch.allclose(mean, (x * full).sum(dim, keepdim=True) / count.clamp(min=1), atol=1e-6)
    assert stable.masked_mean(x, mask, dim).numel() == mean.numel()


def test_empty_tensors() -> None:
    assert stable.masked_mean(torch.zeros(0), torch.zeros(0, dtype=torch.bool)) == 0
    assert stable.masked_mean(torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.bool), -1).tolist() == [0, 0]


def test_gradients_by_differences() -> None:
    gradcheck(lambda t: stable.masked_mean(t, MASK, -1), X)
    gradcheck(lambda t: stable.masked_loss(t, MASK), X)
