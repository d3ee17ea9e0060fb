"""LayerNorm and RMSNorm that hold in half precision, on zero input, and on values whose squares overflow.

torch's own kernels do the work, so ordinary rows have torch's bits. Rows beyond 2**40 are first scaled down
by a power of two, which a norm does not notice: plain layer_norm gives NaN there, rms_norm a silent 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanwatch.messages import say
from nanwatch.stable.arguments import require_floating, require_number
from nanwatch.stable.limits import largest_of, scale_of, wide_dtype, widened


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """torch.nn.functional.layer_norm. With eps=0 a constant row gives the bias, and the gradient 0."""
    dims = _dims("layer_norm", x, normalized_shape, eps)
    shape = list(normalized_shape)
    weight, bias, wide = _wide(weight, x), _wide(bias, x), widened(x)
    if x.numel() == 0:
        return F.layer_norm(wide, shape, weight, bias, eps).to(x.dtype)
    wide = wide / scale_of(largest_of(wide, dims), lift=eps == 0)
    if eps == 0:
        constant = wide.detach().amax(dims, keepdim=True) == wide.detach().amin(dims, keepdim=True)
        wide, eps = wide.masked_fill(constant, 0.0), torch.finfo(wide.dtype).tiny
    return F.layer_norm(wide, shape, weight, bias, eps).to(x.dtype)


def rms_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """torch.nn.functional.rms_norm. With eps=0 a zero row gives zeros, and the gradient 0."""
    wide = widened(x)
    eps = torch.finfo(wide.dtype).eps if eps is None else eps
    dims = _dims("rms_norm", x, normalized_shape, eps)
    shape, weight = list(normalized_shape), _wide(weight, x)
    if x.numel() == 0:
        return F.rms_norm(wide, shape, weight, eps).to(x.dtype)
    largest = largest_of(wide, dims)
    wide = wide / scale_of(largest, lift=eps == 0)
    if eps > 0:
        return F.rms_norm(wide, shape, weight, eps).to(x.dtype)
    zero = largest == 0
    return F.rms_norm(wide.masked_fill(zero, 1.0), shape, weight, eps).masked_fill(zero, 0.0).to(x.dtype)


class LayerNorm(nn.LayerNorm):
    """Takes the place of torch.nn.LayerNorm: same arguments, same state dict."""

    def forward(self, input: Tensor) -> Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.RMSNorm):
    """Takes the place of torch.nn.RMSNorm: same arguments, same state dict."""

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)


def _dims(where: str, x: Tensor, normalized_shape: Sequence[int], eps: float) -> tuple[int, ...]:
    require_floating(where, x=x)
    require_number(where, "eps", eps, least=0.0, example=1e-5)
    count = len(normalized_shape)
    if count == 0 or tuple(x.shape[-count:]) != tuple(normalized_shape):
        found, expected = tuple(x.shape), tuple(normalized_shape)
        raise ValueError(say("stable.normalized_shape", where=where, found=found, expected=expected))
    return tuple(range(-count, 0))


def _wide(parameter: Tensor | None, x: Tensor) -> Tensor | None:
    return None if parameter is None else parameter.to(wide_dtype(x.dtype))
