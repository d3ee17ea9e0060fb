"""exp and ratio at the edge of each dtype, and logsumexp over nothing."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from stable_checks import (
    DTYPES,
    HALVES,
    INF,
    NAN,
    all_finite,
    assert_finite,
    assert_is_plain_where_finite,
    assert_near_float64,
    gradcheck,
    quick,
    row,
    value_and_gradients,
    vectors,
)

from nanwatch import stable


@pytest.mark.parametrize("dtype", DTYPES)
def test_exp_limit_is_the_last_number_before_inf(dtype: torch.dtype) -> None:
    limit = torch.full((17,), stable.exp_limit(dtype), dtype=dtype)
    assert limit[0].item() == stable.exp_limit(dtype), "the limit is a number of the dtype"
    assert limit.exp().isfinite().all()
    assert torch.nextafter(limit, limit + 1).exp().isinf().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_eps_for_does_its_work(dtype: torch.dtype) -> None:
    eps = torch.tensor(stable.eps_for(dtype), dtype=dtype)
    assert eps > 0 and eps == eps.to(torch.float64).to(dtype)
    assert (1 / eps).isfinite() and eps.rsqrt().isfinite() and eps.log().isfinite()
    assert 1 + eps == 1
    if dtype == torch.float16:
        assert torch.tensor(1e-8, dtype=dtype) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_exp_overflow(dtype: torch.dtype) -> None:
    x = row(800.0, 1e4, INF, 1.0, -800.0, -INF, dtype=dtype)
    assert not all_finite(torch.exp, x)
    value, (gradient,) = value_and_gradients(stable.exp, x)
    assert value.isfinite().all() and value[:3].min() > torch.finfo(dtype).max / 3
    assert gradient[:3].tolist() == [0.0] * 3 and gradient.isfinite().all()


@quick
@given(vectors)
def test_exp_is_the_plain_one_where_that_is_finite(values: list[float]) -> None:
    assert_is_plain_where_finite(stable.exp, torch.exp, torch.tensor([*values, 88.7, 88.8, -90.0]))


@pytest.mark.parametrize("dtype", HALVES)
def test_exp_of_every_half_number(dtype: torch.dtype) -> None:
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    x = x[x.isfinite()]
    plain = x.exp()
    assert torch.equal(stable.exp(x)[plain.isfinite()], plain[plain.isfinite()])
    assert stable.exp(x).isfinite().all() and plain.isinf().any()


def test_exp_with_a_limit_of_ones_own() -> None:
    value, (gradient,) = value_and_gradients(lambda t: stable.exp(t, limit=2.0), row(1.0, 2.0, 3.0))
    assert torch.equal(value, row(1.0, 2.0, 2.0).exp())
    assert gradient[2] == 0 and (gradient[:2] > 0).all()
    assert stable.exp(row(1e3), limit=500.0).isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_ratio(dtype: torch.dtype) -> None:
    new = row(-1.0, -2.0, -INF, -INF, 0.0, 0.0, dtype=dtype)
    old = row(-1.5, -1.0, -INF, -1.0, -INF, -900.0, dtype=dtype)
    plain = lambda a, b: torch.exp(a - b)  # noqa: E731
    assert not all_finite(plain, new, old)
    assert_finite(stable.ratio, new, old)
    value, gradients = value_and_gradients(stable.ratio, new, old)
    assert value[2] == 1 and value[3] == 0 and all(g[2] == 0 and g[4] == 0 for g in gradients)
    assert_near_float64(stable.ratio, plain, new[:2], old[:2])


@quick
@given(vectors)
def test_ratio_is_the_plain_one_where_that_is_finite(values: list[float]) -> None:
    new = torch.tensor(values).clamp(-200, 200)
    assert_is_plain_where_finite(stable.ratio, lambda a, b: torch.exp(a - b), new, new.flip(0) * 0.7)


def test_logsumexp_over_nothing() -> None:
    x = torch.tensor([[-INF, -INF], [0.0, 1.0], [-INF, 2.0]])
    assert not all_finite(lambda t: torch.logsumexp(t, -1), x[:1])
    value, (gradient,) = value_and_gradients(stable.logsumexp, x)
    assert torch.equal(value, torch.logsumexp(x, -1)) and value[0] == -INF
    assert gradient[0].tolist() == [0.0, 0.0] and gradient.isfinite().all()
    assert_is_plain_where_finite(
        lambda t: stable.logsumexp(t, empty=-50.0), lambda t: torch.logsumexp(t, -1), x
    )
    assert stable.logsumexp(torch.zeros(2, 0)).tolist() == [-INF, -INF]


def test_logsumexp_under_a_mask() -> None:
    x = torch.tensor([[1.0, NAN, 2.0], [3.0, 4.0, INF]])
    mask = torch.tensor([[True, False, True], [False, False, False]])
    value, (gradient,) = value_and_gradients(lambda t: stable.logsumexp(t, mask=mask, keepdim=True), x)
    assert value.shape == (2, 1) and value[0, 0] == torch.logsumexp(row(1.0, 2.0), 0) and value[1, 0] == -INF
    assert gradient.isfinite().all() and gradient[~mask].tolist() == [0.0] * 4


@pytest.mark.parametrize("dtype", HALVES)
def test_logsumexp_in_half(dtype: torch.dtype) -> None:
    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(0)).mul(20).to(dtype)
    assert_near_float64(stable.logsumexp, lambda t: torch.logsumexp(t, -1), x)


def test_gradients_by_differences() -> None:
    gradcheck(stable.exp, row(-1.0, 0.5, 3.0))
    gradcheck(stable.ratio, row(-1.0, -2.0), row(-1.5, -0.2))
    x = torch.tensor([[0.3, -INF, 1.0], [0.1, 0.2, 0.3]]).double()
    gradcheck(lambda t: stable.logsumexp(torch.where(x == -INF, x, t)), x.nan_to_num(neginf=0.0))
    assert math.isfinite(stable.exp_limit(torch.float64))
