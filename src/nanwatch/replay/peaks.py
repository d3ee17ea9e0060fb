"""How near the values that modules make come to the limit of their dtype, in a forward pass."""

from __future__ import annotations

import math
import weakref

import torch
from torch import nn

from nanwatch.replay.op_call import OpCall
from nanwatch.replay.trace import Op
from nanwatch.tensors import is_finite
from nanwatch.watching.storages import Storages

LIMITED = (torch.float16, torch.bfloat16, torch.float32)


class Peaks:
    """Of one step."""

    def __init__(self) -> None:
        self.shares: dict[tuple[weakref.ref[nn.Module], ...], float] = {}
        """Modules running -> the largest value they made, as a share of what the dtype holds."""

    def looks_finite(self, tensor: torch.Tensor, modules: tuple[nn.Module, ...]) -> bool:
        """The verdict on an output, and its largest value noted."""
        if not _has_a_limit(tensor):
            return is_finite(tensor)
        low, high = torch.aminmax(tensor.detach())
        peak = max(-float(low), float(high))
        if not math.isfinite(peak):
            return is_finite(tensor)
        share = peak / torch.finfo(tensor.dtype).max
        place = tuple(map(weakref.ref, modules))
        if share > self.shares.get(place, 0.0):
            self.shares[place] = share
        return True


def _has_a_limit(tensor: torch.Tensor) -> bool:
    whole = tensor.layout is torch.strided and not tensor.is_nested
    return whole and tensor.dtype in LIMITED and tensor.numel() > 0


def is_made_of_values(call: OpCall, unwritten: Storages[Op]) -> bool:
    """Whether what an op has made are numbers of the program's: not what lay in memory that it read and
    nobody has written, nor what other ranks may still be sending."""
    if call.facts.is_of_an_exchange:
        return False
    return not unwritten or all(unwritten.get(t) is None for n, t in call.inputs if call.facts.reads(n))
