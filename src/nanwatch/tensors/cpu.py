"""Tallies of strided tensors in host memory: by the compiled kernels, or by torch while there are none."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor
from torch.nn import Parameter

from nanwatch.tensors import compiled
from nanwatch.tensors.memory import BYTES, FLOATS, flat_memory, pieces, real_pieces, without_repeats
from nanwatch.tensors.tally import Tally, added

VALUES_IN_L2 = 1 << 15
VALUES_PER_COPY = 1 << 18
VALUES_WORTH_THREADS = 1 << 17
TYPE_NUMBERS = {dtype: number for number, dtype in enumerate(FLOATS)}

_SevenDoubles = ctypes.c_double * 7
_some_function_mode_is_on = torch._C._is_torch_function_mode_enabled


def address_of_row(t: Tensor) -> int:
    """Where the compiled kernels may read t as it is, 0 where they may not. No torch op is called, so neither
    a mode nor a level of functorch nor autograd can notice."""
    kind = type(t)
    if (kind is not Tensor and kind is not Parameter) or _some_function_mode_is_on():
        return 0
    if not t.is_cpu or t.dtype not in TYPE_NUMBERS or t.layout is not torch.strided or t.is_nested:
        return 0
    try:
        if not t.is_contiguous() or t.is_neg():
            return 0
        address = t.data_ptr()
    except RuntimeError:
        return 0
    return address if address and (not t.storage_offset() or t.untyped_storage().nbytes()) else 0


def tally_of_row(t: Tensor) -> Tally | None:
    """The tally of a tensor that the compiled kernels may read as it is, else None: the shortest way."""
    library = compiled.library()
    if library is None or not (address := address_of_row(t)):
        return None
    out, count = _SevenDoubles(), t.numel()
    failed = library.nanwatch_statistics(address, count, TYPE_NUMBERS[t.dtype], threads_for(count), out)
    return None if failed else Tally(*out)


def threads_for(count: int) -> int:
    return torch.get_num_threads() if count >= VALUES_WORTH_THREADS else 1


def tally(t: Tensor) -> Tally:
    """Of any strided CPU tensor, in one pass; copies at most VALUES_PER_COPY values at a time."""
    t, copies = without_repeats(t)
    if t.dtype in BYTES:
        return _tally_of_bytes(t).times(copies)
    library = compiled.library()
    if library is None:
        return added(_tally_by_torch(row) for row in real_pieces(t, VALUES_IN_L2)).times(copies)
    return added(_tally_compiled(library, row) for row in real_pieces(t, VALUES_PER_COPY)).times(copies)


def statistics(t: Tensor) -> Tensor:
    """`tally` as a vector, for the torch op."""
    return torch.tensor(tally(t), dtype=torch.float64)


def _tally_compiled(library: ctypes.CDLL, row: Tensor) -> Tally:
    if not row.numel():
        return Tally()
    out = _SevenDoubles()
    number = TYPE_NUMBERS[row.dtype]
    if library.nanwatch_statistics(row.data_ptr(), row.numel(), number, torch.get_num_threads(), out):
        return _tally_by_torch(row)
    return Tally(*out)


def _tally_by_torch(row: Tensor) -> Tally:
    """In blocks that stay in the cache while four passes go over them."""
    return added(_tally_of_block(block) for block in torch.split(row, VALUES_IN_L2) if block.numel())


def _tally_of_block(block: Tensor) -> Tally:
    values = block.to(torch.float64)
    lo, hi = (float(bound) for bound in torch.aminmax(values))
    if -float("inf") < lo and hi < float("inf"):
        return Tally(0, 0, 0, lo, hi, float(values.sum()), float(torch.dot(values, values)))
    nan, posinf, neginf = (int(bad.sum()) for bad in (values.isnan(), values.isposinf(), values.isneginf()))
    values = values[values.isfinite()]
    if not values.numel():
        return Tally(nan, posinf, neginf)
    lo, hi = (float(bound) for bound in torch.aminmax(values))
    return Tally(nan, posinf, neginf, lo, hi, float(values.sum()), float(torch.dot(values, values)))


def _tally_of_bytes(t: Tensor) -> Tally:
    """An 8-bit type has 256 values: how often each occurs says everything."""
    seen = torch.zeros(256, dtype=torch.int64)
    flat = flat_memory(t)
    for piece in (flat,) if flat is not None else pieces(t, VALUES_PER_COPY):
        seen += _occurrences(piece.contiguous().view(torch.uint8).view(-1))
    return _tally_of_occurrences(seen.to(torch.float64), _byte_values(t.dtype))


def _occurrences(row: Tensor) -> Tensor:
    library = compiled.library()
    if library is None:
        return torch.stack(
            [torch.bincount(b, minlength=256) for b in torch.split(row, VALUES_IN_L2)] or [row]
        ).sum(0)
    seen = torch.empty(256, dtype=torch.int64)
    library.nanwatch_bytes(row.data_ptr(), row.numel(), seen.data_ptr())
    return seen


@functools.cache
def _byte_values(dtype: torch.dtype) -> Tensor:
    every_byte = torch.arange(256, dtype=torch.uint8)
    return every_byte.view(dtype).to(torch.float64)


def _tally_of_occurrences(seen: Tensor, values: Tensor) -> Tally:
    finite = values.isfinite() & (seen > 0)
    good, often = values[finite], seen[finite]
    nan, posinf, neginf = (
        float(seen[bad].sum()) for bad in (values.isnan(), values.isposinf(), values.isneginf())
    )
    if not good.numel():
        return Tally(nan, posinf, neginf)
    lo, hi = (float(bound) for bound in torch.aminmax(good))
    weighted = good * often
    return Tally(nan, posinf, neginf, lo, hi, float(weighted.sum()), float((weighted * good).sum()))
