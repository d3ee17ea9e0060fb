"""Buffers that hold -inf on purpose, and healthy: what attention adds to its scores."""

from __future__ import annotations

import torch
from torch import Tensor


def is_band(tensor: Tensor) -> bool:
    """Numbers where a token may look, and -inf before and after them: slopes of ALiBi under a causal mask, or
    in a window. In most rows, and alike for all heads: damaged memory does not look like that."""
    if tensor.dim() < 2 or min(tensor.shape[-2:]) < 2 or tensor.is_complex():
        return False
    masked = tensor == -torch.inf
    if not bool((torch.isfinite(tensor) | masked).all()):
        return False
    heads = masked.reshape(-1, *masked.shape[-2:])
    rows = heads[0]
    if not bool((heads == rows).all()) or 2 * int(rows.any(-1).sum()) < len(rows):
        return False
    changes = (rows[:, 1:] != rows[:, :-1]).sum(-1)
    begins_masked = rows[:, 0]
    in_one_piece = torch.where(begins_masked, changes <= 2, changes <= 1)
    return bool((in_one_piece & ~rows.all(-1)).all())
