"""Adaptive layer norm: scale, shift and gate computed from a condition, within bounds.

A scale is the output of a linear layer that nothing holds; x * (1 + scale) overflows when it runs away.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from nanwatch.stable.arguments import require_floating, require_number, require_shape
from nanwatch.stable.limits import bounded_to, widened
from nanwatch.stable.norms import layer_norm


def modulate(x: Tensor, shift: Tensor, scale: Tensor, limit: float | None = None) -> Tensor:
    """x * (1 + scale) + shift, in float32 at least and within x's dtype.

    With `limit`, the scale is held to ±limit; its gradient is 0 beyond. shift and scale broadcast to x:
    where x is (batch, tokens, width) they are (batch, 1, width).
    """
    require_floating("modulate", x=x, shift=shift, scale=scale)
    require_shape("modulate", "shift", shift.shape, x.shape)
    require_shape("modulate", "scale", scale.shape, x.shape)
    factor = 1 + _held("modulate", scale, limit)
    return bounded_to(widened(x) * factor + widened(shift), x.dtype)


def gated(residual: Tensor, x: Tensor, gate: Tensor, limit: float | None = None) -> Tensor:
    """residual + gate * x, in float32 at least and within residual's dtype; `limit` as in `modulate`."""
    require_floating("gated", residual=residual, x=x, gate=gate)
    require_shape("gated", "x", x.shape, residual.shape)
    require_shape("gated", "gate", gate.shape, residual.shape)
    return bounded_to(widened(residual) + _held("gated", gate, limit) * widened(x), residual.dtype)


class AdaLayerNorm(nn.Module):
    """LayerNorm whose scale and shift come from a condition; starts as LayerNorm (its layer is zero)."""

    def __init__(
        self, width: int, condition_width: int, limit: float | None = 10.0, eps: float = 1e-6
    ) -> None:
        super().__init__()
        self.width, self.limit, self.eps = width, limit, eps
        self.projection = nn.Linear(condition_width, 2 * width)
        nn.init.zeros_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """x is (batch, ..., width), condition (batch, condition_width)."""
        shift, scale = self.projection(F.silu(condition)).chunk(2, dim=-1)
        shape = (shift.shape[0],) + (1,) * (x.dim() - 2) + (self.width,)
        normal = layer_norm(x, (self.width,), eps=self.eps)
        return modulate(normal, shift.reshape(shape), scale.reshape(shape), self.limit)


def _held(where: str, factor: Tensor, limit: float | None) -> Tensor:
    wide = widened(factor)
    if limit is None:
        return wide
    require_number(where, "limit", limit, above=0.0, example=10.0)
    return wide.clamp(-limit, limit)
