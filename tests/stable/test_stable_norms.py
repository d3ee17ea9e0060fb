"""LayerNorm and RMSNorm: torch's bits in the ordinary range; zero, constant and huge rows besides."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from stable_checks import (
    DTYPES,
    HALVES,
    NAN,
    all_finite,
    assert_finite,
    assert_is_plain_where_finite,
    assert_near_float64,
    gradcheck,
    quick,
    value_and_gradients,
)
from torch import Tensor, nn

from nanwatch import stable

WIDTH = 6


def x_w_b(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    source = torch.Generator().manual_seed(0)
    return [torch.randn(*s, generator=source).to(dtype) for s in ((3, WIDTH), (WIDTH,), (WIDTH,))]


def layer(x: Tensor, w: Tensor | None = None, b: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    return stable.layer_norm(x, x.shape[-1:], w, b, eps)


def plain_layer(x: Tensor, w: Tensor | None = None, b: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b, eps)


def rms(x: Tensor, w: Tensor | None = None, eps: float | None = None) -> Tensor:
    return stable.rms_norm(x, x.shape[-1:], w, eps)


def plain_rms(x: Tensor, w: Tensor | None = None, eps: float | None = None) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], w, eps)


def rms_by_hand(x: Tensor, eps: float = 1e-8) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)


@quick
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=WIDTH, max_size=WIDTH))
def test_torchs_bits_in_the_ordinary_range(values: list[float]) -> None:
    x, w, b = torch.tensor([values]), *x_w_b()[1:]
    assert_is_plain_where_finite(layer, plain_layer, x, w, b)
    assert_is_plain_where_finite(rms, plain_rms, x, w)


@pytest.mark.parametrize("dtype", DTYPES)
def test_against_float64(dtype: torch.dtype) -> None:
    x, w, b = x_w_b(dtype)
    for size in (1.0, 100.0):
        assert_near_float64(layer, plain_layer, x * size, w, b)
        eps = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
        assert_near_float64(
            lambda t, s, e=eps: rms(t, s, e), lambda t, s, e=eps: plain_rms(t, s, e), x * size, w
        )


def test_rms_norm_by_hand_fails_in_float16_and_this_does_not() -> None:
    x = torch.tensor([[300.0, -400.0, 280.0, 500.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float16)
    assert (rms_by_hand(x)[0] == 0).all(), "the overflow makes a silent zero"
    assert rms_by_hand(x)[1].isnan().all(), "1e-8 is 0 in float16"
    assert_near_float64(lambda t: rms(t, eps=1e-8), lambda t: rms_by_hand(t), x[:1])
    assert_finite(lambda t: rms(t, eps=1e-5), x)


@pytest.mark.parametrize("size", [1e20, 3e37])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rows_whose_squares_overflow(dtype: torch.dtype, size: float) -> None:
    x = (torch.tensor([[1.0, 2.0, -1.0, 0.5]]) * size).to(dtype)
    assert not all_finite(plain_layer, x)
    assert (plain_rms(x) == 0).all(), "a silent zero"
    for block, plain in ((layer, plain_layer), (rms, plain_rms)):
        value, (gradient,) = value_and_gradients(block, x)
        true, (true_gradient,) = value_and_gradients(plain, x.double())
        torch.testing.assert_close(value.double(), true, rtol=0, atol=4 * torch.finfo(dtype).eps)
        largest = true_gradient.abs().amax().item()
        atol = 20 * torch.finfo(dtype).eps * largest + torch.finfo(torch.float32).tiny
        torch.testing.assert_close(gradient.double(), true_gradient, rtol=0, atol=atol)


def test_a_huge_row_with_a_small_spread_is_not_flattened_by_eps() -> None:
    x = (1 + torch.linspace(0, 1e-3, 8)).mul(1e20)[None]
    torch.testing.assert_close(layer(x).double(), plain_layer(x.double()), rtol=0, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_and_constant_rows(dtype: torch.dtype) -> None:
    w, b = (t.to(dtype) for t in x_w_b()[1:])
    x = torch.stack([torch.zeros(WIDTH), torch.full((WIDTH,), 0.1), torch.arange(WIDTH)]).to(dtype)
    assert not all_finite(lambda t: plain_layer(t, eps=0.0), x)
    assert not all_finite(lambda t: plain_rms(t, eps=0.0), x)
    value, gradients = value_and_gradients(lambda *t: layer(*t, eps=0.0), x, w, b)
    assert torch.equal(value[:2], b.expand(2, -1)) and (gradients[0][:2] == 0).all()
    value, gradients = value_and_gradients(lambda *t: rms(*t, eps=0.0), x, w)
    assert (value[0] == 0).all() and (gradients[0][0] == 0).all()
    assert all(g.isfinite().all() for g in gradients)
    for block, eps in ((layer, 1e-5), (layer, 0.0), (rms, 1e-5), (rms, 0.0)):
        assert_finite(lambda t, n=block, e=eps: n(t, eps=e), x)


def test_eps_zero_is_the_plain_one_elsewhere() -> None:
    x, w, b = x_w_b()
    tight = {"rtol": 1e-6, "atol": 1e-6}
    assert_is_plain_where_finite(
        lambda *t: layer(*t, eps=0.0), lambda *t: plain_layer(*t, eps=0.0), x, w, b, **tight
    )
    assert_is_plain_where_finite(
        lambda *t: rms(*t, eps=0.0), lambda *t: plain_rms(*t, eps=0.0), x, w, **tight
    )


@pytest.mark.parametrize(("mine", "theirs"), [(stable.LayerNorm, nn.LayerNorm), (stable.RMSNorm, nn.RMSNorm)])
@pytest.mark.parametrize("affine", [True, False])
def test_the_modules_take_the_place_of_torchs(mine, theirs, affine: bool) -> None:
    plain = theirs((2, WIDTH), elementwise_affine=affine)
    for parameter in plain.parameters():
        nn.init.normal_(parameter)
    module = mine((2, WIDTH), elementwise_affine=affine)
    assert isinstance(module, theirs) and list(module.state_dict()) == list(plain.state_dict())
    module.load_state_dict(copy.deepcopy(plain.state_dict()))
    x = torch.randn(3, 2, WIDTH)
    assert torch.equal(module(x), plain(x))
    assert torch.equal(copy.deepcopy(module)(x), plain(x))
    half = module.half()(x.half())
    assert half.dtype == torch.float16 and torch.allclose(half.float(), plain(x), atol=2e-2)


@pytest.mark.parametrize("dtype", HALVES)
def test_half_input_with_float32_weights(dtype: torch.dtype) -> None:
    x, w, b = x_w_b(dtype)
    assert layer(x, w.float(), b.float()).dtype == dtype
    assert torch.equal(layer(x, w.float(), b.float()), layer(x, w, b))
    assert torch.equal(rms(x, w.float()), rms(x, w))


def test_a_nan_that_comes_in_goes_out() -> None:
    x = x_w_b()[0]
    x[1, 2] = NAN
    for block in (layer, rms):
        assert block(x).isnan().all(-1).tolist() == [False, True, False]


def test_gradients_by_differences() -> None:
    x, w, b = x_w_b()
    gradcheck(layer, x, w, b)
    gradcheck(rms, x, w)
    gradcheck(lambda t: layer(t, eps=0.0), x)
    gradcheck(lambda t: rms(t, eps=0.0), x)
