"""Lengths, unit vectors, cosines and deviations: at zero, in half, and where squares leave the dtype."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
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
    quick,
    row,
    value_and_gradients,
)
from torch import Tensor

from nanwatch import stable

ordinary = st.lists(st.floats(-1e6, 1e6, width=32).map(lambda v: v if abs(v) > 1e-6 else 0.0), min_size=2)


def by_hand(x: Tensor) -> Tensor:
    return x.square().sum(-1).sqrt()


def test_norm_of_zero() -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    assert not all_finite(by_hand, x)
    value, (gradient,) = value_and_gradients(stable.norm, x)
    assert value.tolist() == [0.0, 5.0] and gradient[0].tolist() == [0.0, 0.0]
    assert torch.allclose(gradient[1], row(0.6, 0.8))


def test_norm_of_zero_in_a_gradient_penalty() -> None:
    """The second derivative, as in WGAN-GP, at a row that is zero."""

    def penalty_gradient(length) -> Tensor:
        x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
        (first,) = torch.autograd.grad(length(x * 1.0).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((length(first) - 2).square().sum(), x)
        return second

    assert penalty_gradient(by_hand).isnan().any()
    assert penalty_gradient(stable.norm).isfinite().all()


@quick
@given(ordinary)
def test_norm_is_the_plain_one_in_the_ordinary_range(values: list[float]) -> None:
    assert_is_plain_where_finite(
        stable.norm, lambda t: torch.linalg.vector_norm(t, dim=-1), torch.tensor([values])
    )


@pytest.mark.parametrize("size", [1e-40, 1e-30, 1e-22, 1e15, 1e20, 1e37])
def test_norm_where_squares_leave_float32(size: float) -> None:
    x = torch.tensor([[1.0, -2.0, 0.5]]) * size
    plain = torch.linalg.vector_norm(x, dim=-1)
    if size != 1e15:
        assert plain.isinf() or not torch.allclose(plain.double(), x.double().norm(dim=-1), rtol=1e-4, atol=0)
    value, (gradient,) = value_and_gradients(stable.norm, x)
    true, (true_gradient,) = value_and_gradients(lambda t: t.norm(dim=-1), x.double())
    torch.testing.assert_close(value.double(), true, rtol=1e-6, atol=1e-45)
    torch.testing.assert_close(gradient.double(), true_gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dim", [0, -1, (0, 1), None])
@pytest.mark.parametrize("keepdim", [False, True])
def test_dimensions(dim, keepdim: bool) -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(stable.norm(x, dim, keepdim), torch.linalg.vector_norm(x, dim=dim, keepdim=keepdim))
    assert torch.equal(stable.std(x, dim, keepdim=keepdim), torch.std(x, dim, keepdim=keepdim))
    assert stable.norm(torch.tensor(-2.0), None) == 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_in_every_dtype(dtype: torch.dtype) -> None:
    x = torch.randn(3, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
    y = torch.randn(3, 16, generator=torch.Generator().manual_seed(2)).to(dtype)
    assert_near_float64(stable.norm, lambda t: t.norm(dim=-1), x)
    assert_near_float64(stable.normalize, lambda t: t / t.norm(dim=-1, keepdim=True), x)
    assert_near_float64(lambda t: stable.std(t, -1), lambda t: t.std(-1), x)
    assert_near_float64(stable.cosine_similarity, lambda a, b: F.cosine_similarity(a, b, dim=-1), x, y)


@pytest.mark.parametrize("dtype", HALVES)
def test_large_values_in_half(dtype: torch.dtype) -> None:
    x = torch.tensor([[300.0, -400.0, 500.0, 200.0]], dtype=dtype)
    if dtype == torch.float16:
        assert not all_finite(by_hand, x)
    assert_near_float64(stable.norm, lambda t: t.norm(dim=-1), x)
    assert_near_float64(stable.normalize, lambda t: t / t.norm(dim=-1, keepdim=True), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_normalize_zero(dtype: torch.dtype) -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=dtype)
    assert not all_finite(lambda t: t / t.norm(dim=-1, keepdim=True), x)
    if dtype == torch.float16:
        assert not all_finite(lambda t: F.normalize(t, dim=-1), x), "1e-12 is 0 in float16"
    value, (gradient,) = value_and_gradients(stable.normalize, x)
    assert value[0].tolist() == [0.0, 0.0] and gradient[0].tolist() == [0.0, 0.0]
    assert_finite(stable.normalize, x)


@quick
@given(ordinary.filter(lambda values: any(values)))
def test_normalize_is_the_plain_one_in_the_ordinary_range(values: list[float]) -> None:
    plain = lambda t: t / torch.linalg.vector_norm(t, dim=-1, keepdim=True)  # noqa: E731
    assert_is_plain_where_finite(stable.normalize, plain, torch.tensor([values]))


@pytest.mark.parametrize("size", [1e-40, 1e-25, 1e25])
def test_normalize_far_out(size: float) -> None:
    x = torch.tensor([[3.0, 4.0]]) * size
    assert not torch.allclose(F.normalize(x, dim=-1), torch.tensor([[0.6, 0.8]]), rtol=1e-3)
    assert torch.allclose(stable.normalize(x), torch.tensor([[0.6, 0.8]]), rtol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cosine_with_zero_and_beyond_one(dtype: torch.dtype) -> None:
    a = torch.tensor([[0.0, 0.0, 0.0], [1e-4, 1e-4, 1e-4], [3e4, 3e4, 3e4]], dtype=dtype)
    b = torch.tensor([[1.0, 1.0, 1.0], [1e-4, 1e-4, 1e-4], [3e4, 3e4, 3e4]], dtype=dtype)
    if dtype == torch.float16:
        assert not all_finite(lambda s, t: F.cosine_similarity(s, t, dim=-1), a, b)
    value, gradients = value_and_gradients(stable.cosine_similarity, a, b)
    assert (
        value[0] == 0 and (value <= 1).all() and torch.allclose(value[1:].float(), torch.ones(2), atol=1e-2)
    )
    assert all((g[0] == 0).all() and g.isfinite().all() for g in gradients)
    assert_finite(lambda s, t: stable.acos(stable.cosine_similarity(s, t)), a, b)


def test_std_of_equal_and_of_too_few_values() -> None:
    x = torch.tensor([[0.1, 0.1, 0.1], [1.0, 2.0, 4.0]])
    assert not all_finite(lambda t: t.var(-1).sqrt(), x)
    value, (gradient,) = value_and_gradients(lambda t: stable.std(t, -1), x)
    assert value[0] == 0 and gradient[0].tolist() == [0.0] * 3
    assert_is_plain_where_finite(lambda t: stable.std(t, -1), lambda t: t.std(-1), x)

    def second(block) -> Tensor:
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(block(leaf).sum(), leaf, create_graph=True)
        return torch.autograd.grad(first.square().sum(), leaf)[0]

    assert second(lambda t: t.var(-1).sqrt()).isnan().any()
    assert second(lambda t: stable.std(t, -1)).isfinite().all()
    single = torch.tensor([[2.0], [3.0]])
    with pytest.warns(UserWarning, match="degrees of freedom"):
        assert not all_finite(lambda t: t.std(-1), single)
    value, (gradient,) = value_and_gradients(lambda t: stable.std(t, -1), single)
    assert value.tolist() == [0.0, 0.0] and gradient.flatten().tolist() == [0.0, 0.0]
    assert stable.std(torch.zeros(0)) == 0


@quick
@given(ordinary)
def test_std_is_the_plain_one_in_the_ordinary_range(values: list[float]) -> None:
    assert_is_plain_where_finite(lambda t: stable.std(t, -1), lambda t: t.std(-1), torch.tensor([values]))


@pytest.mark.parametrize("size", [1e-30, 1e25])
def test_std_far_out(size: float) -> None:
    x = torch.tensor([[1.0, 2.0, 4.0]]) * size
    assert not torch.allclose(x.var(-1).sqrt().double(), x.double().std(-1), rtol=1e-3, atol=0)
    assert_near_float64(lambda t: stable.std(t, -1) / size, lambda t: t.std(-1) / size, x)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_what_is_not_finite_is_not_hidden(bad: float) -> None:
    x = torch.tensor([[1.0, bad], [3.0, 4.0]])
    assert stable.norm(x).isfinite().tolist() == [False, True]
    assert stable.normalize(x).isfinite().all(-1).tolist() == [False, True]
    assert stable.std(x, -1).isfinite().tolist() == [False, True]
    assert stable.cosine_similarity(x, x).isfinite().tolist() == [False, True]


def test_gradients_by_differences() -> None:
    x, y = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(3))
    for size in (1.0, 1e-3, 1e3):
        gradcheck(lambda t, s=size: stable.norm(t * s) / s, x)
    gradcheck(stable.normalize, x)
    gradcheck(lambda t: stable.std(t, -1), x)
    gradcheck(lambda a, b: stable.cosine_similarity(a, b) * 0.5, x, y)
