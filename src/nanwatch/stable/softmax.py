"""Softmax under a mask: a row with nothing to look at gives zeros, where the plain op gives NaN."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nanwatch.stable.arguments import require_floating, require_mask


def masked_softmax(scores: Tensor, mask: Tensor | None = None, dim: int = -1) -> Tensor:
    """softmax over what the mask keeps (True takes part); 0 elsewhere, and in rows that keep nothing.

    A score of -inf counts as masked. Whatever stands at a masked place, NaN too, has no influence on value or
    gradient. Where softmax(scores.masked_fill(~mask, -inf)) is finite, this is the same bit for bit.
    """
    kept = _kept("masked_softmax", scores, mask)
    inner = _filled(scores, kept, dim)
    return torch.softmax(inner, dim).masked_fill(~kept, 0.0).to(scores.dtype)


def masked_log_softmax(
    scores: Tensor, mask: Tensor | None = None, dim: int = -1, fill: float | None = None
) -> Tensor:
    """log_softmax over what the mask keeps; `fill`, with gradient 0, at masked places.

    By default that is the lowest number of the dtype and not -inf, since 0 * -inf is NaN in the first loss
    that multiplies by a target of 0.
    """
    kept = _kept("masked_log_softmax", scores, mask)
    fill = torch.finfo(scores.dtype).min if fill is None else fill
    inner = _filled(scores, kept, dim)
    return torch.log_softmax(inner, dim).to(scores.dtype).masked_fill(~kept, fill)


def _kept(where: str, scores: Tensor, mask: Tensor | None) -> Tensor:
    require_floating(where, scores=scores)
    kept = scores != -math.inf
    if mask is None:
        return kept
    require_mask(where, mask, scores.shape)
    return kept & mask


def _filled(scores: Tensor, kept: Tensor, dim: int) -> Tensor:
    nothing = ~kept.any(dim, keepdim=True)
    return scores.masked_fill(~kept, -math.inf).masked_fill(nothing, 0.0)
