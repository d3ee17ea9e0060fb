"""Whether a replay gave the values that the program got."""

from __future__ import annotations

import torch

from nanwatch.replay.tracer import measurable


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same values, NaN in the same places. What is not strided is taken to be equal."""
    if a.shape != b.shape or a.dtype != b.dtype or a.layout is not torch.strided:
        return a.layout is not torch.strided
    return bool(torch.equal(a, b)) or bool(((a == b) | ((a != a) & (b != b))).all())


def alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal but for the rounding of devices that add in any order."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.layout is not torch.strided or not measurable(a):
        return True
    return bool(torch.allclose(a.detach(), b.detach(), rtol=1e-2, atol=1e-3, equal_nan=True))
