"""Cross-entropy, KL divergence and entropy without 0 * -inf, 0 / 0 and log(0).

Computed in float32 at least and given back in the dtype of the first argument.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from nanwatch.stable.arguments import require_choice, require_floating, require_shape
from nanwatch.stable.elementary import guarded_log
from nanwatch.stable.limits import log_of_zero, widened

REDUCTIONS = ("mean", "sum", "none")
LOWEST_LOG = -100.0
"""Where torch's own binary_cross_entropy bounds its logarithms."""


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """torch.nn.functional.cross_entropy; 0, with gradient 0, where every label is ignored.

    The logits of an ignored label, NaN too, have no influence on the gradient either.
    """
    require_floating("cross_entropy", logits=logits)
    require_choice("cross_entropy", "reduction", reduction, REDUCTIONS)
    wide = widened(logits)
    weight = None if weight is None else weight.to(wide.dtype)
    classes = 1 if logits.dim() > 1 else 0
    if target.dtype.is_floating_point:
        target = target.to(wide.dtype)
        count = torch.tensor(target.numel() // max(target.shape[classes], 1), device=logits.device)
    else:
        ignored = target == ignore_index
        wide = wide.masked_fill(ignored.unsqueeze(classes), 0.0)
        count = (~ignored).sum() if weight is None else _weight_of(target, ignored, weight)
    how = "none" if reduction == "none" else "sum"
    loss = F.cross_entropy(
        wide, target, weight, ignore_index=ignore_index, reduction=how, label_smoothing=label_smoothing
    )
    if reduction == "mean":
        loss = (loss / count.masked_fill(count == 0, 1)).masked_fill(count == 0, 0.0)
    return loss.to(logits.dtype)


def _weight_of(target: Tensor, ignored: Tensor, weight: Tensor) -> Tensor:
    return weight[target.masked_fill(ignored, 0)].masked_fill(ignored, 0.0).sum()


def bce_from_logits(logits: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Binary cross-entropy; a logit of ±inf costs 0 on the right side and counts as ±100 on the wrong."""
    _require_pair("bce_from_logits", logits, target, reduction)
    wide, target = widened(logits), target.to(widened(logits).dtype)
    infinite = wide.abs() == math.inf
    inner = F.binary_cross_entropy_with_logits(wide.masked_fill(infinite, 0.0), target, reduction="none")
    at_the_ends = torch.where(wide > 0, 1 - target, target) * -LOWEST_LOG
    return _reduced(torch.where(infinite, at_the_ends, inner), reduction, logits.dtype)


def bce_from_probabilities(p: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Binary cross-entropy of probabilities, with the logarithms bounded at -100 as torch does.

    Where p is 0 or 1, or a little beyond, the infinite logarithm has the gradient 0; torch's is up to 1e12,
    and a p beyond [0, 1] is an error there, on CUDA one that ends the process. Better, where there are
    logits: `bce_from_logits`.
    """
    _require_pair("bce_from_probabilities", p, target, reduction)
    wide, target = widened(p), target.to(widened(p).dtype)
    yes = guarded_log(wide, p.dtype).clamp(LOWEST_LOG, 0.0)
    no = guarded_log(1 - wide, p.dtype).clamp(LOWEST_LOG, 0.0)
    return _reduced(-(target * yes + (1 - target) * no), reduction, p.dtype)


def kl_from_logits(p_logits: Tensor, q_logits: Tensor, dim: int = -1) -> Tensor:
    """KL(p || q) along `dim`. A class that p excludes (-inf) adds 0; one that only q excludes counts with the
    logarithm that `log` gives for 0, where the plain op is inf or NaN."""
    require_floating("kl_from_logits", p_logits=p_logits, q_logits=q_logits)
    log_p, p = _log_softmax(widened(p_logits), dim)
    log_q, _ = _log_softmax(widened(q_logits), dim)
    return (p * (log_p - log_q)).sum(dim).to(p_logits.dtype)


def kl_from_probabilities(p: Tensor, q: Tensor, dim: int = -1) -> Tensor:
    """KL(p || q) along `dim`. A class with p = 0 adds 0; one with q = 0 counts with the logarithm that `log`
    gives for 0. The gradient is 0 where p or q is."""
    require_floating("kl_from_probabilities", p=p, q=q)
    wide_p, wide_q = widened(p), widened(q)
    nothing = wide_p <= 0
    surprise = guarded_log(wide_p, p.dtype) - guarded_log(wide_q, q.dtype)
    return torch.where(nothing, 0.0, torch.where(nothing, 0.0, wide_p) * surprise).sum(dim).to(p.dtype)


def entropy_from_logits(logits: Tensor, dim: int = -1) -> Tensor:
    """-sum p log p along `dim`. A class of -inf adds 0, and so does a row in which every class is."""
    require_floating("entropy_from_logits", logits=logits)
    log_p, p = _log_softmax(widened(logits), dim)
    return -(p * log_p).sum(dim).to(logits.dtype)


def entropy_from_probabilities(p: Tensor, dim: int = -1) -> Tensor:
    """-sum p log p along `dim`. A class with p = 0 adds 0, with gradient 0."""
    require_floating("entropy_from_probabilities", p=p)
    wide = widened(p)
    nothing = wide <= 0
    terms = torch.where(nothing, 0.0, wide) * guarded_log(wide, p.dtype)
    return -torch.where(nothing, 0.0, terms).sum(dim).to(p.dtype)


def _log_softmax(logits: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """log p, finite throughout, and p, with 0 for an excluded class."""
    excluded = logits == -math.inf
    nothing = excluded.all(dim, keepdim=True)
    log_p = torch.log_softmax(logits.masked_fill(nothing, 0.0), dim)
    p = log_p.exp().masked_fill(excluded, 0.0)
    return log_p.masked_fill(excluded, log_of_zero(logits.dtype)), p


def _require_pair(where: str, x: Tensor, target: Tensor, reduction: str) -> None:
    require_floating(where, **{"logits" if where.endswith("logits") else "p": x})
    require_shape(where, "target", target.shape, x.shape)
    require_choice(where, "reduction", reduction, REDUCTIONS)


def _reduced(losses: Tensor, reduction: str, dtype: torch.dtype) -> Tensor:
    if reduction == "sum":
        losses = losses.sum()
    elif reduction == "mean":
        losses = losses.sum() / max(losses.numel(), 1)
    return losses.to(dtype)
