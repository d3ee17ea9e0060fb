"""Scaled dot-product attention that survives a query which may see nothing, and garbage in padded keys."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from nanwatch.messages import say
from nanwatch.stable.arguments import require_floating, require_number, require_shape


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """torch's scaled_dot_product_attention, which it calls, so that the fused kernels stay in use.

    mask: bool (True where the query may see the key) or float (added to the scores), for (..., L, S).
    A query that may see nothing gives zeros and the gradient 0. A key that no query may see has no
    influence, even where it or its value is NaN (padding never written: 0 * NaN is NaN in the plain op).
    """
    _require_arguments(query, key, value, dropout)
    if mask is None:
        return F.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=causal, scale=scale
        )
    _require_mask(query, key, mask)
    seen, mask = _seen(query, key, mask, causal)
    blind = ~seen.any(-1, keepdim=True)
    unseen = ~seen.any(-2).unsqueeze(-1)
    key, value = torch.where(unseen, 0.0, key), torch.where(unseen, 0.0, value)
    opened = seen | blind if mask.dtype == torch.bool else mask.masked_fill(blind, 0.0)
    result = F.scaled_dot_product_attention(
        query, key, value, attn_mask=opened, dropout_p=dropout, scale=scale
    )
    return result.masked_fill(blind, 0.0)


def _seen(query: Tensor, key: Tensor, mask: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """Which key each query may see, and the mask as the kernels take it: of two dimensions at least."""
    mask = mask.reshape((1,) * (2 - mask.dim()) + tuple(mask.shape))
    past = None
    if causal:
        past = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if mask.dtype == torch.bool:
        seen = mask if past is None else mask & past
        return seen, seen
    # -1e9 is -inf in float16: what counts is what the kernel will see.
    mask = mask.to(_dtype_of_kernel(query))
    if past is not None:
        mask = mask.masked_fill(~past, -math.inf)
    return mask != -math.inf, mask


def _dtype_of_kernel(query: Tensor) -> torch.dtype:
    kind = query.device.type
    if query.dtype != torch.float64 and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return query.dtype


def _require_arguments(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> None:
    require_floating("attention", query=query, key=key, value=value)
    require_number("attention", "dropout", dropout, least=0.0, most=1.0, example=0.1)
    shapes = [tuple(t.shape) for t in (query, key, value)]
    if min(map(len, shapes)) < 2 or query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ValueError(say("stable.attention_shapes", query=shapes[0], key=shapes[1], value=shapes[2]))


def _require_mask(query: Tensor, key: Tensor, mask: Tensor) -> None:
    if not isinstance(mask, Tensor):
        raise ValueError(say("stable.attention_mask_dtype", found=f"a {type(mask).__name__}"))
    if mask.dtype != torch.bool and not mask.dtype.is_floating_point:
        raise ValueError(say("stable.attention_mask_dtype", found=mask.dtype))
    scores = (*query.shape[:-1], key.shape[-2])
    require_shape("attention", "mask", mask.shape, scores)
