"""exp, ratios of probabilities and logsumexp that neither overflow nor meet -inf - -inf."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nanwatch.stable.arguments import require_floating, require_mask, require_number
from nanwatch.stable.limits import common_dtype, exp_limit, widened


def exp(x: Tensor, limit: float | None = None) -> Tensor:
    """exp(min(x, limit)), the gradient 0 above the limit.

    Without a limit of your own it is the dtype's: 88.72 in float32, 11.09 in float16. Up to there it is the
    plain exp.
    """
    require_floating("exp", x=x)
    return torch.exp(x.clamp(max=_limit("exp", x.dtype, limit))).to(x.dtype)


def ratio(log_new: Tensor, log_old: Tensor, limit: float | None = None) -> Tensor:
    """exp(log_new - log_old), the ratio of two probabilities from their logarithms, as in PPO.

    Bounded by exp(limit), by default by the dtype; where both are -inf (an action that both policies exclude)
    it is 1, with gradient 0.
    """
    require_floating("ratio", log_new=log_new, log_old=log_old)
    dtype = common_dtype(log_new, log_old)
    limit = _limit("ratio", dtype, limit)
    excluded = (log_new == -math.inf) & (log_old == -math.inf)
    new = torch.where(excluded, 0.0, widened(log_new))
    old = torch.where(excluded, 0.0, widened(log_old))
    return torch.exp((new - old).clamp(max=limit)).to(dtype)


def _limit(where: str, dtype: torch.dtype, limit: float | None) -> float:
    if limit is None:
        return exp_limit(dtype)
    require_number(where, "limit", limit, example=20.0)
    return min(limit, exp_limit(dtype))


def logsumexp(
    x: Tensor, dim: int = -1, mask: Tensor | None = None, keepdim: bool = False, empty: float = -math.inf
) -> Tensor:
    """torch.logsumexp over what the mask keeps (True takes part); `empty`, with gradient 0, where nothing is
    left: no value kept, or every kept one -inf. The true value there is log(0) = -inf, hence the default."""
    require_floating("logsumexp", x=x)
    kept = x != -math.inf
    if mask is not None:
        require_mask("logsumexp", mask, x.shape)
        kept = kept & mask
    nothing = ~kept.any(dim, keepdim=True)
    inner = x.masked_fill(~kept, -math.inf).masked_fill(nothing, 0.0)
    result = torch.logsumexp(inner, dim, keepdim=True).masked_fill(nothing, empty).to(x.dtype)
    return result if keepdim else result.squeeze(dim)
