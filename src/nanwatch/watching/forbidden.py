"""Infinities that a program keeps in its weights on purpose: what a CRF forbids is a score of -inf."""

from __future__ import annotations

import torch


def was_infinite_before(weight: torch.Tensor) -> bool:
    """Whether no update has made the infinities that are in it: there is nothing to learn there, and its
    gradient is 0."""
    gradient = weight.grad
    if gradient is None or gradient.layout is not torch.strided or gradient.shape != weight.shape:
        return False
    values = weight.detach()
    return not bool(values.isnan().any()) and not bool(gradient[values.isinf()].any())
