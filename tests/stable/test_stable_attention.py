"""Attention with blind queries and padded keys, against the formula in float64."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from stable_checks import (
    DTYPES,
    INF,
    NAN,
    all_finite,
    assert_is_plain_where_finite,
    gradcheck,
    value_and_gradients,
)
from torch import Tensor

from nanwatch import stable

BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 2, 3, 4, 8
PADDING = torch.tensor([[True, True, False, False], [False] * 4])[:, None, None, :]


def qkv(dtype: torch.dtype = torch.float32, spread: float = 1.0) -> list[Tensor]:
    source = torch.Generator().manual_seed(3)
    sizes = [QUERIES, KEYS, KEYS]
    return [(torch.randn(BATCH, HEADS, n, WIDTH, generator=source) * spread).to(dtype) for n in sizes]


def by_hand(mask: Tensor | None = None, scale: float | None = None):
    """What people write: NaN for a query that may see nothing."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-2, -1) * (scale or 1 / math.sqrt(q.shape[-1]))
        if mask is not None:
            scores = scores.masked_fill(~mask, -INF)
        return torch.softmax(scores, -1) @ v

    return attend


def reference(mask: Tensor):
    """By hand in float64, with the rows that may see nothing taken out of the graph."""
    blind = ~mask.any(-1, keepdim=True)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return by_hand(mask | blind)(q.double(), k.double(), v.double()).masked_fill(blind, 0.0)

    return attend


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spread", [1.0, 6.0])
def test_a_blind_query_gives_zeros(dtype: torch.dtype, spread: float) -> None:
    inputs = qkv(dtype, spread)
    assert not all_finite(by_hand(PADDING), *inputs)
    value, gradients = value_and_gradients(lambda *t: stable.attention(*t, PADDING), *inputs)
    true, true_gradients = value_and_gradients(reference(PADDING), *(t.double() for t in inputs))
    for mine, other in zip([value, *gradients], [true, *true_gradients], strict=True):
        assert mine.dtype == dtype and mine.isfinite().all()
        limit = 40 * torch.finfo(dtype).eps * max(other.abs().amax().item(), spread**2)
        assert (mine.double() - other).abs().amax() <= limit
    assert (value[1] == 0).all() and all((g[1] == 0).all() for g in gradients)


def test_it_is_the_plain_one_where_every_query_sees_something() -> None:
    mask = torch.tensor([[True, False, True, True], [True] * 4, [False, False, False, True]])
    plain = lambda *t: F.scaled_dot_product_attention(*t, attn_mask=mask)  # noqa: E731
    assert_is_plain_where_finite(lambda *t: stable.attention(*t, mask), plain, *qkv())
    assert_is_plain_where_finite(stable.attention, F.scaled_dot_product_attention, *qkv())
    causal = lambda *t: F.scaled_dot_product_attention(*t, is_causal=True, scale=0.3)  # noqa: E731
    assert_is_plain_where_finite(lambda *t: stable.attention(*t, causal=True, scale=0.3), causal, *qkv())


@pytest.mark.parametrize("garbage", [NAN, INF])
def test_padded_keys_may_hold_anything(garbage: float) -> None:
    inputs, clean = qkv(), qkv()
    for t in inputs[1:]:
        t[0, :, 2:] = garbage
        t[1] = garbage
    assert not all_finite(lambda *t: F.scaled_dot_product_attention(*t, attn_mask=PADDING), *inputs)
    block = lambda *t: stable.attention(*t, PADDING)  # noqa: E731
    for mine, other in zip(
        [block(*inputs), *value_and_gradients(block, *inputs)[1]],
        [block(*clean), *value_and_gradients(block, *clean)[1]],
        strict=True,
    ):
        assert torch.equal(mine, other)


def test_a_nan_in_a_visible_key_is_not_hidden() -> None:
    q, k, v = qkv()
    v[0, 0, 0, 0] = NAN
    assert stable.attention(q, k, v, PADDING)[0, 0].isnan().any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_additive_masks(dtype: torch.dtype) -> None:
    """-1e9 is -inf in float16, where a row full of it masks everything."""
    inputs = qkv(dtype)
    for low in (-INF, -1e9):
        added = torch.where(PADDING, 0.0, low)
        value, gradients = value_and_gradients(lambda *t, a=added: stable.attention(*t, a), *inputs)
        assert all(t.isfinite().all() for t in [value, *gradients])
        same = stable.attention(*inputs, PADDING)
        assert torch.allclose(value[0], same[0], atol=8 * torch.finfo(dtype).eps)
        if low == -INF or dtype == torch.float16:
            assert (value[1] == 0).all()


def test_the_gradient_of_an_additive_mask() -> None:
    bias = torch.randn(QUERIES, KEYS, generator=torch.Generator().manual_seed(5))
    bias[1] = -INF
    inputs = [t.double() for t in qkv()]
    leaf = bias.double().requires_grad_()
    (gradient,) = torch.autograd.grad(stable.attention(*inputs, leaf).sum(), leaf)
    assert gradient.isfinite().all() and (gradient[1] == 0).all() and (gradient[0] != 0).all()


def test_causal_with_padding_in_front() -> None:
    """The usual way to get a blind query: left padding under a causal mask."""
    q, k, v = (t[..., :3, :] for t in qkv())
    mask = torch.tensor([False, True, True])
    seen = mask & torch.ones(3, 3, dtype=torch.bool).tril()
    assert not all_finite(by_hand(seen), q, k, v)
    both = stable.attention(q, k, v, mask, causal=True)
    assert both.isfinite().all() and (both[..., 0, :] == 0).all()
    assert torch.allclose(both, stable.attention(q, k, v, seen))
    added = torch.where(mask, 0.0, -INF)
    assert torch.allclose(both, stable.attention(q, k, v, added, causal=True))


def test_dropout_is_that_of_the_plain_op() -> None:
    q, k, v = qkv()
    seen = torch.ones(QUERIES, KEYS, dtype=torch.bool)
    torch.manual_seed(0)
    mine = stable.attention(q, k, v, seen, dropout=0.5)
    torch.manual_seed(0)
    assert torch.equal(mine, F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=0.5))


def test_under_autocast_minus_1e9_is_looked_at_in_the_dtype_of_the_kernel() -> None:
    q, k, v = qkv()
    with torch.autocast("cpu", torch.float16):
        value = stable.attention(q, k, v, torch.where(PADDING, 0.0, -1e9))
    assert value.isfinite().all() and (value[1] == 0).all()


def test_nothing_to_see_at_all() -> None:
    q, k, v = qkv()
    none = torch.zeros(QUERIES, 0, dtype=torch.bool)
    assert (stable.attention(q, k[..., :0, :], v[..., :0, :], none) == 0).all()
    assert stable.attention(q[:0], k[:0], v[:0], PADDING[:0]).shape == (0, HEADS, QUERIES, WIDTH)


def test_gradients_by_differences() -> None:
    inputs = [t[:, :1, :2, :2] for t in qkv()]
    mask = torch.tensor([[True, False], [False, False]])
    gradcheck(lambda *t: stable.attention(*t, mask), *inputs, second=False)
    gradcheck(lambda *t: stable.attention(*t, causal=True), *inputs, second=False)
