"""Means over what a mask keeps: 0, with gradient 0, where it keeps nothing and the plain mean is 0 / 0."""

from __future__ import annotations

import torch
from torch import Tensor

from nanwatch.stable.arguments import require_choice, require_floating, require_mask
from nanwatch.stable.limits import widened


def masked_mean(
    x: Tensor,
    mask: Tensor,
    dim: int | tuple[int, ...] | None = None,
    keepdim: bool = False,
    otherwise: float = 0.0,
) -> Tensor:
    """The mean of x where the mask is True; `otherwise` where it is True nowhere.

    Sum and count are taken in float32 at least, so neither overflows in float16. What is masked, NaN too, has
    no influence on value or gradient.
    """
    require_floating("masked_mean", x=x)
    require_mask("masked_mean", mask, x.shape)
    return _mean(x, mask, dim, keepdim, otherwise)


def masked_loss(losses: Tensor, mask: Tensor, reduction: str = "mean") -> Tensor:
    """One number from the losses of many items, of which the mask keeps some; 0 where it keeps none."""
    require_floating("masked_loss", losses=losses)
    require_mask("masked_loss", mask, losses.shape)
    require_choice("masked_loss", "reduction", reduction, ("mean", "sum"))
    if reduction == "sum":
        return torch.where(mask, widened(losses), 0.0).sum().to(losses.dtype)
    return _mean(losses, mask, None, False, 0.0)


def _mean(
    x: Tensor, mask: Tensor, dim: int | tuple[int, ...] | None, keepdim: bool, otherwise: float
) -> Tensor:
    total = torch.where(mask, widened(x), 0.0).sum(dim, keepdim=keepdim)
    count = mask.expand(x.shape).sum(dim, keepdim=keepdim)
    return (total / count.clamp(min=1)).masked_fill(count == 0, otherwise).to(x.dtype)
