"""What is differentiated with a gradient that the program gives is no loss of its own: logits, or what a part
of a pipeline made. It may hold infinities on purpose, classes that are masked; their gradient is 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nanwatch.tensors import is_finite
from nanwatch.watching.tape import tensors_in


def seeds_of(
    args: tuple[Any, ...], kwargs: dict[str, Any], differentiated: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """For each tensor that a backward is called with: the gradient that the program gives, if it does."""
    given = args[1] if len(args) > 1 else kwargs.get("grad_tensors")
    seeds = list(given) if isinstance(given, (list, tuple)) else list(tensors_in(given))
    return seeds if len(seeds) == len(differentiated) else [None] * len(differentiated)


def judged(value: torch.Tensor, seed: torch.Tensor | None) -> torch.Tensor:
    """What is to be finite: the value itself, of which a trace knows who made it, unless all that is bad in
    it is a mask."""
    trained_on = _as_trained_on(value, seed)
    return trained_on if trained_on is value or is_finite(trained_on) else value


def sum_trained_on(value: torch.Tensor, seed: torch.Tensor | None) -> torch.Tensor:
    """The same in one number, which nobody waits for."""
    trained_on = _as_trained_on(value, seed)
    return value if trained_on is value else trained_on.sum(dtype=torch.float32)


def _as_trained_on(value: torch.Tensor, seed: torch.Tensor | None) -> torch.Tensor:
    """`value`, with 0 for the infinities to which the program gives the gradient 0: it trains nothing with
    them. A NaN stays, and so does an infinity that is trained on."""
    if seed is None or value.numel() == 1 or value.shape != seed.shape or value.is_complex():
        return value
    if value.layout is not torch.strided or seed.layout is not torch.strided or value.is_meta:
        return value
    return torch.where(value.isinf() & (seed == 0), 0.0, value.detach())
