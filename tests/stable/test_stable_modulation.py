"""AdaLN: the plain formula while it fits, bounded where the scale has run away."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from stable_checks import (
    DTYPES,
    HALVES,
    INF,
    all_finite,
    assert_finite,
    assert_is_plain_where_finite,
    assert_near_float64,
    gradcheck,
    row,
    value_and_gradients,
)
from torch import Tensor

from nanwatch import stable


def plain(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return x * (1 + scale) + shift


def inputs(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    source = torch.Generator().manual_seed(0)
    return [torch.randn(*s, generator=source).to(dtype) for s in ((2, 3, 4), (2, 1, 4), (2, 1, 4))]


def test_modulate_is_the_plain_formula() -> None:
    assert_is_plain_where_finite(stable.modulate, plain, *inputs())
    assert_is_plain_where_finite(lambda *t: stable.modulate(*t, limit=10.0), plain, *inputs())
    assert_is_plain_where_finite(stable.gated, lambda r, x, g: r + g * x, inputs()[0], *inputs()[:2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_against_float64(dtype: torch.dtype) -> None:
    assert_near_float64(stable.modulate, plain, *inputs(dtype))
    x, gate, _ = inputs(dtype)
    assert_near_float64(stable.gated, lambda r, x, g: r + g * x, x, x.flip(0), gate)


def test_a_scale_that_has_run_away_in_float16() -> None:
    x, shift, scale = row(10.0, -10.0, 1.0).half(), row(0.0, 0.0, 0.0).half(), row(3e4, 3e4, 2.0).half()
    assert not all_finite(plain, x, shift, scale)
    assert_finite(stable.modulate, x, shift, scale)
    assert stable.modulate(x, shift, scale).tolist() == [65504.0, -65504.0, 3.0]
    value, (_, _, gradient) = value_and_gradients(lambda *t: stable.modulate(*t, limit=4.0), x, shift, scale)
    assert value.tolist() == [50.0, -50.0, 3.0]
    assert gradient[:2].tolist() == [0.0, 0.0] and gradient[2] > 0
    assert not all_finite(lambda r, v, g: r + g * v, x, x, scale)
    assert_finite(stable.gated, x, x, scale)
    assert stable.modulate(x * INF, shift, scale).isinf().any(), "what came in infinite is not hidden"


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_ada_layer_norm_starts_as_layer_norm(dtype: torch.dtype) -> None:
    norm = stable.AdaLayerNorm(4, 5).to(dtype)
    x, condition = inputs(dtype)[0], torch.randn(2, 5).to(dtype)
    assert torch.equal(norm(x, condition), stable.layer_norm(x, (4,), eps=1e-6))
    assert torch.equal(norm(x[:, 0], condition), F.layer_norm(x[:, 0].float(), (4,), eps=1e-6).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_ada_layer_norm_holds_a_scale_that_has_run_away(dtype: torch.dtype) -> None:
    norm = stable.AdaLayerNorm(4, 5).to(dtype)
    x, condition = inputs(dtype)[0], torch.full((2, 5), 9.0, dtype=dtype)
    with torch.no_grad():
        norm.projection.weight[4:] = 3e4 if dtype == torch.float16 else 1e38
    assert norm.projection(F.silu(condition))[:, 4:].isinf().all()
    value = norm(x, condition)
    assert torch.allclose(value, stable.layer_norm(x, (4,), eps=1e-6) * 11, rtol=2 * torch.finfo(dtype).eps)
    gradients = torch.autograd.grad(value.float().sum(), list(norm.parameters()))
    assert all(g.isfinite().all() for g in gradients)


def test_gradients_by_differences() -> None:
    gradcheck(stable.modulate, *inputs())
    gradcheck(lambda *t: stable.modulate(*t, limit=50.0), *inputs())
    gradcheck(stable.gated, inputs()[0], *inputs()[:2])
