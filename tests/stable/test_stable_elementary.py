"""log, sqrt, division, powers and angles: the bits of the plain ops, and finite where those are not."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
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
    numbers,
    quick,
    row,
    value_and_gradients,
    vectors,
)

from nanwatch import stable

SPECIAL = [0.0, -0.0, 1.0, -1.0, 1e-45, 2e-39, 1e-38, 1e-30, 3e38, -3e38]


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_at_zero_and_below(dtype: torch.dtype) -> None:
    x = row(0.0, -0.0, -1.0, 1.0, dtype=dtype)
    assert not all_finite(torch.log, x)
    value, (gradient,) = value_and_gradients(stable.log, x)
    smallest = torch.finfo(dtype).tiny * torch.finfo(dtype).eps
    assert value.tolist() == pytest.approx([math.log(smallest)] * 3 + [0.0], rel=0.01)
    assert gradient.tolist() == [0.0, 0.0, 0.0, 1.0]


@quick
@given(vectors)
def test_log_is_the_plain_one_where_that_is_finite(values: list[float]) -> None:
    x = torch.tensor([*values, *SPECIAL])
    assert_is_plain_where_finite(stable.log, torch.log, x)


@pytest.mark.parametrize("dtype", HALVES)
def test_log_of_every_half_number(dtype: torch.dtype) -> None:
    """Where 1 / x does not fit, the value is still right and the gradient 0."""
    x = torch.arange(2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    x = x[x.isfinite()]
    plain_gradient = 1 / x
    value = stable.log(x)
    assert torch.equal(value[1:], torch.log(x)[1:])
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(stable.log(leaf).sum(), leaf)
    assert gradient.isfinite().all() and plain_gradient.isinf().any()
    assert torch.equal(gradient, plain_gradient.masked_fill(plain_gradient.isinf(), 0.0))


def test_log_with_a_floor() -> None:
    x = row(0.0, 1e-7, 1e-6, 0.5)
    value, (gradient,) = value_and_gradients(lambda t: stable.log(t, floor=1e-6), x)
    assert torch.allclose(value, x.clamp(min=1e-6).log())
    assert gradient[:2].tolist() == [0.0, 0.0] and gradient[3] > 0


def test_log_when_denormals_are_flushed() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot")
    try:
        assert_finite(stable.log, row(0.0, 1e-45, 1e-40))
    finally:
        torch.set_flush_denormal(False)


def test_sqrt_at_zero() -> None:
    x = row(0.0, -0.0, -1e-9, 4.0)
    assert not all_finite(torch.sqrt, x)
    value, (gradient,) = value_and_gradients(stable.sqrt, x)
    assert value.tolist() == [0.0, 0.0, 0.0, 2.0]
    assert gradient.tolist() == [0.0, 0.0, 0.0, 1 / 4]


@quick
@given(vectors)
def test_sqrt_is_the_plain_one_where_that_is_finite(values: list[float]) -> None:
    assert_is_plain_where_finite(stable.sqrt, torch.sqrt, torch.tensor([*values, *SPECIAL]))


@quick
@given(
    st.lists(st.tuples(numbers, st.one_of(st.just(0.0), numbers.filter(lambda b: abs(b) > 1e-6))), min_size=1)
)
def test_divide_is_the_plain_one_where_that_is_finite(pairs: list[tuple[float, float]]) -> None:
    a, b = (torch.tensor(side).clamp(-1e6, 1e6) for side in zip(*pairs, strict=True))
    assert_is_plain_where_finite(stable.divide, torch.div, a, b)


def test_divide_by_zero() -> None:
    a, b = row(1.0, 0.0, -1.0, 6.0), row(0.0, 0.0, -0.0, 3.0)
    assert not all_finite(torch.div, a, b)
    value, gradients = value_and_gradients(stable.divide, a, b)
    assert value.tolist() == [0.0, 0.0, 0.0, 2.0]
    assert [g[:3].tolist() for g in gradients] == [[0.0] * 3] * 2
    assert stable.divide(a, b, otherwise=1.0).tolist() == [1.0, 1.0, 1.0, 2.0]
    assert stable.divide(row(1.0, 1.0), row(1e-3, -1e-3), floor=1e-2).tolist() == [0.0, 0.0]
    assert stable.divide(torch.ones(2, 1), torch.zeros(3)).shape == (2, 3)


@pytest.mark.parametrize("exponent", [0.5, -0.5, -1.0, 1.5, 0.0, 1.0, 2.0, 3.0, -2.0])
def test_pow_with_a_number(exponent: float) -> None:
    x = row(-8.0, -1.0, -0.0, 0.0, 1e-3, 1.0, 7.0)
    assert_is_plain_where_finite(lambda t: stable.pow(t, exponent), lambda t: t.pow(exponent), x)
    if exponent in (0.5, -0.5, -1.0, 1.5, -2.0):
        assert not all_finite(lambda t: t.pow(exponent), x)


@quick
@given(
    st.lists(
        st.tuples(st.floats(-9, 9, width=32), st.floats(-3, 3, width=32) | st.integers(-3, 3)), min_size=1
    )
)
def test_pow_with_a_learned_exponent(pairs: list[tuple[float, float]]) -> None:
    base, exponent = (torch.tensor(side, dtype=torch.float32) for side in zip(*pairs, strict=True))
    base = torch.where(base.abs() < 1e-3, 0.0, base)
    assert_is_plain_where_finite(stable.pow, torch.pow, base, exponent)


def test_pow_of_a_negative_base_has_no_nan_in_the_exponents_gradient() -> None:
    assert not all_finite(torch.pow, row(-2.0), row(2.0))
    value, (_, exponent) = value_and_gradients(stable.pow, row(-2.0), row(2.0))
    assert value.item() == 4.0 and exponent.item() == 0.0


@pytest.mark.parametrize(("block", "plain"), [(stable.acos, torch.acos), (stable.asin, torch.asin)])
def test_arcs_at_and_beyond_one(block, plain) -> None:
    x = row(1.0, -1.0, 1.0000001, -1.5, 0.3, 0.99999994)
    assert not all_finite(plain, x)
    assert_is_plain_where_finite(block, plain, x)
    assert block(x[2:4]).tolist() == plain(row(1.0, -1.0)).tolist()
    _, (gradient,) = value_and_gradients(block, x)
    assert gradient[:4].tolist() == [0.0] * 4


@quick
@given(st.lists(st.floats(-1.5, 1.5, width=32), min_size=1, max_size=12))
def test_arcs_are_the_plain_ones_where_those_are_finite(values: list[float]) -> None:
    assert_is_plain_where_finite(stable.acos, torch.acos, torch.tensor(values))
    assert_is_plain_where_finite(stable.asin, torch.asin, torch.tensor(values))


@quick
@given(st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), st.floats(-1e6, 1e6, width=32)), min_size=1))
def test_atan2_is_the_plain_one_in_the_ordinary_range(pairs: list[tuple[float, float]]) -> None:
    y, x = (torch.where(t.abs() < 1e-6, 0.0, t) for t in map(torch.tensor, zip(*pairs, strict=True)))
    assert_is_plain_where_finite(stable.atan2, torch.atan2, y, x)


def test_atan2_far_out_and_at_the_origin() -> None:
    y, x = row(1e-25, 1e25, 2e37, 0.0), row(-1e-25, 2e25, 1e37, 0.0)
    _, (plain, _) = value_and_gradients(torch.atan2, y, x)
    assert (plain[:3] == 0).all(), "the plain gradient is right by now; this block is no longer needed for it"
    assert_near_float64(stable.atan2, torch.atan2, y[:1], x[:1])
    assert_near_float64(stable.atan2, torch.atan2, y[1:2], x[1:2])
    _, gradients = value_and_gradients(stable.atan2, y, x)
    assert [g[3].item() for g in gradients] == [0.0, 0.0]
    zeros = row(0.0, -0.0, 0.0, -0.0), row(0.0, 0.0, -0.0, -0.0)
    assert torch.equal(stable.atan2(*zeros), torch.atan2(*zeros))


@pytest.mark.parametrize("dtype", HALVES)
def test_atan2_in_half(dtype: torch.dtype) -> None:
    y, x = row(3e-4, 300.0, 0.5, dtype=dtype), row(2e-4, -400.0, 0.25, dtype=dtype)
    for i in range(3):
        assert_near_float64(stable.atan2, torch.atan2, y[i : i + 1], x[i : i + 1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_log1mexp(dtype: torch.dtype) -> None:
    x = row(-1e-3, -0.1, -0.6931, -0.7, -5.0, -10.0, dtype=dtype)
    for i in range(len(x)):
        reference = lambda t: torch.log(-torch.expm1(t)) if t > -0.7 else torch.log1p(-torch.exp(t))  # noqa: E731
        assert_near_float64(stable.log1mexp, reference, x[i : i + 1], ulps=2)
    ends = row(0.0, 0.5, 200.0, -INF, -80.0, dtype=dtype)
    plain = lambda t: torch.log(1 - torch.exp(t))  # noqa: E731
    assert not all_finite(plain, ends)
    value, (gradient,) = value_and_gradients(stable.log1mexp, ends)
    assert value.isfinite().all() and gradient[:4].tolist() == [0.0] * 4
    assert value[0] == stable.log(torch.zeros(1, dtype=dtype))[0] and value[3] == 0


def test_log1mexp_keeps_what_the_plain_formula_loses() -> None:
    x = row(-1e-10)
    assert not all_finite(lambda t: torch.log(1 - torch.exp(t)), x)
    assert_near_float64(stable.log1mexp, lambda t: torch.log(-torch.expm1(t)), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_sigmoid(dtype: torch.dtype) -> None:
    x = row(-200.0, -1.0, 0.0, 30.0, dtype=dtype)
    if dtype != torch.float64:
        assert not all_finite(lambda t: torch.log(torch.sigmoid(t)), x)
    for i in range(len(x)):
        assert_near_float64(stable.log_sigmoid, torch.nn.functional.logsigmoid, x[i : i + 1])


def test_gradients_by_differences() -> None:
    x = torch.tensor([0.3, 0.7, 0.05, 0.9])
    for block in (stable.log, stable.sqrt, stable.acos, stable.asin, stable.log_sigmoid):
        gradcheck(block, x)
    gradcheck(stable.log1mexp, row(-0.1, -0.6, -0.8, -4.0))
    gradcheck(stable.divide, row(1.0, -2.0), row(3.0, -0.5))
    gradcheck(lambda t: stable.pow(t, 2.5), x)
    gradcheck(stable.pow, x, row(0.5, -1.5, 2.0, 3.0))
    gradcheck(stable.atan2, row(1.0, -2.0, 0.5), row(-3.0, -0.5, 0.1))


@pytest.mark.parametrize("name", ["log", "sqrt", "acos", "asin", "log1mexp", "log_sigmoid", "exp"])
def test_a_nan_that_comes_in_goes_out(name: str) -> None:
    assert getattr(stable, name)(row(NAN, -0.5)).isnan().tolist() == [True, False]


def test_a_nan_that_comes_in_goes_out_of_pairs() -> None:
    for block in (stable.divide, stable.pow, stable.atan2, stable.ratio):
        assert block(row(NAN, 1.0, 1.0), row(2.0, NAN, 1.0)).isnan()[[0, 2]].tolist() == [True, False]
