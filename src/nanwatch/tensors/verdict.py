"""`is_finite`: the shortest way to know whether a tensor holds NaN or Inf."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nanwatch.signals import let_through
from nanwatch.tensors import compiled
from nanwatch.tensors.cpu import TYPE_NUMBERS, address_of_row, threads_for
from nanwatch.tensors.measure import tally_of
from nanwatch.tensors.memory import FLOATS, parts_of, without_repeats
from nanwatch.tensors.plain_dispatch import plain_dispatch


def is_finite(t: Tensor) -> bool:
    """Whether every value of t is finite. Waits for t's device; True when t has no readable values."""
    library = compiled.library()
    if library is not None and (address := address_of_row(t)):
        count = t.numel()
        answer: int = library.nanwatch_finite(address, count, TYPE_NUMBERS[t.dtype], threads_for(count))
        if answer >= 0:
            return bool(answer)
    return _is_finite_anyhow(t)


def _is_finite_anyhow(t: Tensor) -> bool:
    if _sum_is_finite(t):
        return True
    tally = tally_of(t)
    return tally is None or tally.bad == 0


def _sum_is_finite(t: Tensor) -> bool:
    """NaN and Inf propagate into a sum, so a finite sum is proof; another sum may only have overflowed."""
    with plain_dispatch():
        try:
            parts = parts_of(t)
            return parts is not None and all(math.isfinite(_sum(part)) for part in parts)
        except Exception as error:
            let_through(error)
            return False


def _sum(part: Tensor) -> float:
    if part.is_cuda and torch.cuda.is_current_stream_capturing():
        return math.nan
    part, _ = without_repeats(part)
    if part.is_complex():
        part = torch.view_as_real(part.resolve_conj())
    if part.dtype in FLOATS:
        wide = torch.float32 if part.dtype is torch.float16 else part.dtype
        return float(part.sum(dtype=wide))
    return 0.0 if not part.dtype.is_floating_point else math.nan
