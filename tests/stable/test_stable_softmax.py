"""Masked softmax: the plain one bit for bit, zeros where a row is fully masked."""

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
    assert_finite,
    assert_is_plain_where_finite,
    assert_near_float64,
    gradcheck,
    quick,
    value_and_gradients,
)
from torch import Tensor

from nanwatch import stable

MASK = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4, [False, False, True, False]])


def plain_softmax(mask: Tensor, dim: int = -1):
    return lambda s: torch.softmax(s.masked_fill(~mask, -INF), dim)


def plain_log_softmax(mask: Tensor, dim: int = -1):
    return lambda s: torch.log_softmax(s.masked_fill(~mask, -INF), dim)


def scores(dtype: torch.dtype = torch.float32, *shape: int) -> Tensor:
    return torch.randn(shape or (4, 4), generator=torch.Generator().manual_seed(1)).mul(3).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_fully_masked_row_gives_zeros(dtype: torch.dtype) -> None:
    s = scores(dtype)
    assert not all_finite(plain_softmax(MASK), s)
    assert_is_plain_where_finite(lambda t: stable.masked_softmax(t, MASK), plain_softmax(MASK), s)
    value, (gradient,) = value_and_gradients(lambda t: stable.masked_softmax(t, MASK), s)
    assert (value[~MASK] == 0).all() and (gradient[~MASK] == 0).all() and gradient[0].abs().max() > 0


@quick
@given(st.data())
def test_any_scores_any_mask_any_dimension(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    size = rows * columns
    number = st.floats(-100, 100, width=32) | st.just(-INF)
    s = torch.tensor(data.draw(st.lists(number, min_size=size, max_size=size))).reshape(rows, columns)
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=size, max_size=size))).reshape(
        rows, columns
    )
    dim = data.draw(st.sampled_from([0, 1, -1]))
    assert_is_plain_where_finite(lambda t: stable.masked_softmax(t, mask, dim), plain_softmax(mask, dim), s)
    # The plain log_softmax lets the gradient of its masked outputs flow into the others.
    kept = mask & (s != -INF)
    assert_is_plain_where_finite(
        lambda t: stable.masked_log_softmax(t, mask, dim),
        lambda t: plain_log_softmax(mask, dim)(t).masked_fill(~kept, NAN),
        s,
    )


def test_without_a_mask_only_minus_infinity_masks() -> None:
    s = torch.tensor([[-INF, -INF], [1.0, -INF], [1.0, 2.0]])
    assert not all_finite(lambda t: torch.softmax(t, -1), s)
    assert_is_plain_where_finite(stable.masked_softmax, lambda t: torch.softmax(t, -1), s)


@pytest.mark.parametrize("garbage", [NAN, INF, -INF, 1e38])
def test_what_is_masked_has_no_influence(garbage: float) -> None:
    s = scores()
    dirty = s.masked_fill(~MASK, garbage)
    for block in (stable.masked_softmax, stable.masked_log_softmax):
        clean_value, (clean_gradient,) = value_and_gradients(lambda t, b=block: b(t, MASK), s)
        value, (gradient,) = value_and_gradients(lambda t, b=block: b(t, MASK), dirty)
        assert torch.equal(value, clean_value) and torch.equal(gradient, clean_gradient)


def test_a_nan_that_takes_part_is_not_hidden() -> None:
    s = scores()
    s[0, 0] = NAN
    assert stable.masked_softmax(s, MASK)[0].isnan().any()
    assert not stable.masked_softmax(s, MASK)[1:].isnan().any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_softmax_times_a_zero_target_is_finite(dtype: torch.dtype) -> None:
    s, target = scores(dtype), MASK.to(dtype)
    assert not all_finite(lambda t: plain_log_softmax(MASK)(t) * target, s)
    assert_finite(lambda t: stable.masked_log_softmax(t, MASK) * target, s)
    value = stable.masked_log_softmax(s, MASK)
    assert (value[~MASK] == torch.finfo(dtype).min).all() and (value.exp()[~MASK] == 0).all()
    assert (stable.masked_log_softmax(s, MASK, fill=-INF)[~MASK] == -INF).all()


@pytest.mark.parametrize("shape", [(4,), (1, 4), (4, 1), (3, 1, 4), (3, 4, 4)])
def test_masks_broadcast(shape: tuple[int, ...]) -> None:
    s = scores(torch.float32, 3, 4, 4)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(2)) > 0.5
    full = mask.expand(3, 4, 4)
    assert torch.equal(stable.masked_softmax(s, mask), stable.masked_softmax(s, full))
    assert_is_plain_where_finite(lambda t: stable.masked_softmax(t, mask), plain_softmax(full), s)


@pytest.mark.parametrize("dtype", DTYPES)
def test_against_float64(dtype: torch.dtype) -> None:
    mask = MASK.clone()
    mask[1] = True
    s = scores(dtype)
    assert_near_float64(lambda t: stable.masked_softmax(t, mask), plain_softmax(mask), s)
    both = lambda t: stable.masked_log_softmax(t, mask).masked_fill(~mask, 0)  # noqa: E731
    assert_near_float64(both, lambda t: plain_log_softmax(mask)(t).masked_fill(~mask, 0), s)


def test_gradients_by_differences() -> None:
    gradcheck(lambda t: stable.masked_softmax(t, MASK), scores())
    gradcheck(lambda t: stable.masked_softmax(t, MASK, dim=0), scores())
    gradcheck(lambda t: stable.masked_log_softmax(t, MASK, fill=-9.0), scores())
