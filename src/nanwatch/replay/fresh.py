"""Values that an op made itself, beside others that it was only handed.

A tensor may hold infinities or NaN on purpose: a mask, missing labels. Whether an op made another one in it
can only be told place by place, and only where each result belongs to one place of every operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

PLACE_BY_PLACE = frozenset(("_to_copy", "copy_"))
"""Ops that torch does not call pointwise although they are: a cast can overflow."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """How many results are not finite where nothing that was handed on explains it."""

    posinf: int = 0
    neginf: int = 0
    """Infinite where every operand is finite."""
    nan: int = 0
    """NaN where no operand is."""
    nan_of_inf: int = 0
    """Of these: where an operand is infinite."""

    @property
    def infinite(self) -> bool:
        return bool(self.posinf or self.neginf)


def is_pointwise(function: Any) -> bool:
    return torch.Tag.pointwise in function.tags or function._schema.name.split("::")[-1] in PLACE_BY_PLACE


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """Its values, of a type that torch can be asked about: of float8 it does not know what is finite."""
    return tensor.detach().float() if tensor.is_floating_point() and tensor.itemsize == 1 else tensor.detach()


def fresh_values(operands: list[torch.Tensor], output: torch.Tensor) -> tuple[Fresh, torch.Tensor] | None:
    """What is fresh in `output`, and where; None if nothing is, or if they do not belong together place by
    place."""
    measured = [readable(t) for t in operands if t.is_floating_point() or t.is_complex()]
    made = readable(output)
    if not measured or any(t.layout is not torch.strided for t in (made, *measured)):
        return None
    finite = torch.ones(made.shape, dtype=torch.bool, device=made.device)
    any_nan = torch.zeros_like(finite)
    try:
        for tensor in measured:
            finite &= torch.isfinite(tensor).to(made.device).expand(made.shape)
            any_nan |= torch.isnan(tensor).to(made.device).expand(made.shape)
    except RuntimeError:
        return None
    nan = torch.isnan(made) & ~any_nan
    infinite = torch.isinf(made) & finite
    born = nan | infinite
    if not bool(born.any()):
        return None
    plus = infinite if made.is_complex() else infinite & (made > 0)
    counts = (plus, infinite & ~plus, nan, nan & ~finite)
    return Fresh(*(int(places.sum()) for places in counts)), born
