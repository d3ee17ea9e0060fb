"""Numerically safe building blocks, to import instead of the code that makes NaN and Inf.

from nanwatch import stable
weights = stable.masked_softmax(scores, mask)      a fully masked row gives zeros
loss = stable.masked_mean(losses, mask)            nothing left gives 0
length = stable.norm(x)                            gradient 0 at the zero vector

Each is the plain op wherever that one and its gradient are finite. In masks, True takes part.
"""

from __future__ import annotations

from nanwatch.stable.attention import attention
from nanwatch.stable.elementary import acos, asin, atan2, divide, log, log1mexp, log_sigmoid, pow, sqrt
from nanwatch.stable.exponentials import exp, logsumexp, ratio
from nanwatch.stable.limits import eps_for, exp_limit
from nanwatch.stable.losses import (
    bce_from_logits,
    bce_from_probabilities,
    cross_entropy,
    entropy_from_logits,
    entropy_from_probabilities,
    kl_from_logits,
    kl_from_probabilities,
)
from nanwatch.stable.means import masked_loss, masked_mean
from nanwatch.stable.modulation import AdaLayerNorm, gated, modulate
from nanwatch.stable.norms import LayerNorm, RMSNorm, layer_norm, rms_norm
from nanwatch.stable.sampling import UnsoundProbabilitiesError, sample
from nanwatch.stable.schedules import (
    NoiseSchedule,
    alphas_cumprod,
    cosine_betas,
    cosine_schedule,
    linear_betas,
    linear_schedule,
    log_snr,
    snr,
)
from nanwatch.stable.softmax import masked_log_softmax, masked_softmax
from nanwatch.stable.vectors import cosine_similarity, norm, normalize, std

__all__ = [
    "AdaLayerNorm",
    "LayerNorm",
    "NoiseSchedule",
    "RMSNorm",
    "UnsoundProbabilitiesError",
    "acos",
    "alphas_cumprod",
    "asin",
    "atan2",
    "attention",
    "bce_from_logits",
    "bce_from_probabilities",
    "cosine_betas",
    "cosine_schedule",
    "cosine_similarity",
    "cross_entropy",
    "divide",
    "entropy_from_logits",
    "entropy_from_probabilities",
    "eps_for",
    "exp",
    "exp_limit",
    "gated",
    "kl_from_logits",
    "kl_from_probabilities",
    "layer_norm",
    "linear_betas",
    "linear_schedule",
    "log",
    "log1mexp",
    "log_sigmoid",
    "log_snr",
    "logsumexp",
    "masked_log_softmax",
    "masked_loss",
    "masked_mean",
    "masked_softmax",
    "modulate",
    "norm",
    "normalize",
    "pow",
    "ratio",
    "rms_norm",
    "sample",
    "snr",
    "sqrt",
    "std",
]
