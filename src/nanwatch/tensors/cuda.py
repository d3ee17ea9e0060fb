"""Statistics of strided tensors on a CUDA device, as device vectors: nothing here waits for the device.

triton is imported when the first CUDA tensor is measured. Without triton, plain torch ops do the same.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType

import torch
from torch import Tensor

from nanwatch.tensors.memory import real_pieces, without_repeats

VALUES_PER_COPY = 1 << 26
TILE_BYTES = 4096
UNROLL = 8
WARPS = 8
PROGRAMS_PER_PROCESSOR = 4
MOST_STEPS = 32
CAREFUL_TILE = 1024
ROW = 8

_NOTHING_TO_DO = nullcontext()


@functools.cache
def kernels() -> ModuleType | None:
    try:
        from nanwatch.tensors import triton_kernels
    except ImportError:
        return None
    return triton_kernels


def statistics(t: Tensor) -> Tensor:
    """[nan, +inf, -inf, lowest finite, highest finite, sum, sum of squares] in float64, on t's device."""
    t, copies = without_repeats(t)
    measure = _statistics_by_torch if kernels() is None else _statistics_by_triton
    vector = _combined([measure(row) for row in real_pieces(t, VALUES_PER_COPY) if row.numel()], t.device)
    if copies > 1:
        vector[:3].mul_(copies)
        vector[5:].mul_(copies)
    return vector


def _combined(vectors: list[Tensor], device: torch.device) -> Tensor:
    if len(vectors) == 1:
        return vectors[0]
    if not vectors:
        empty = torch.zeros(7, dtype=torch.float64, device=device)
        empty[3].fill_(torch.inf)
        empty[4].fill_(-torch.inf)
        return empty
    rows = torch.stack(vectors)
    total = rows.sum(0)
    total[3].copy_(rows[:, 3].amin())
    total[4].copy_(rows[:, 4].amax())
    return total


def _statistics_by_triton(row: Tensor) -> Tensor:
    module = kernels()
    assert module is not None
    count, tile = row.numel(), TILE_BYTES // row.element_size()
    most = _most_programs(row.get_device())
    programs, steps = _grid(count, tile * UNROLL, most)
    out = torch.empty(7, dtype=torch.float64, device=row.device)
    with on_device(row.get_device()):
        module.statistics_kernel[(programs,)](
            row,
            torch.zeros((programs + 1) * ROW, dtype=torch.float64, device=row.device),
            out,
            count,
            steps,
            **_precision(row.dtype),
            TILE=tile,
            UNROLL=UNROLL,
            CAREFUL_TILE=CAREFUL_TILE,
            ROWS=_power_of_two_from(most),
            num_warps=WARPS,
        )
    return out


def on_device(index: int) -> AbstractContextManager[object]:
    """Launches go to the current device: changes it only where it must be changed."""
    return _NOTHING_TO_DO if torch.cuda.current_device() == index else torch.cuda.device(index)


@functools.cache
def _most_programs(index: int) -> int:
    return PROGRAMS_PER_PROCESSOR * torch.cuda.get_device_properties(index).multi_processor_count


def _grid(count: int, step_values: int, most: int) -> tuple[int, int]:
    """How many programs, and how many steps each takes in one segment: all processors busy, if it can be."""
    steps = max(1, min(MOST_STEPS, count // (most * step_values)))
    return max(1, min(most, -(-count // (steps * step_values)))), steps


def _power_of_two_from(count: int) -> int:
    return max(16, 1 << (count - 1).bit_length())


@functools.cache
def _precision(dtype: torch.dtype) -> dict[str, object]:
    module = kernels()
    assert module is not None
    if dtype is torch.float64:
        return {"LARGEST": torch.finfo(torch.float64).max, "VANISH": 0.0, "REAL": module.tl.float64}
    return {"LARGEST": torch.finfo(torch.float32).max, "VANISH": 1e-28, "REAL": module.tl.float32}


def _statistics_by_torch(row: Tensor) -> Tensor:
    return _combined(
        [_statistics_of_block(block) for block in torch.split(row, VALUES_PER_COPY >> 2)], row.device
    )


def _statistics_of_block(block: Tensor) -> Tensor:
    values = block.to(torch.float64)
    good = values.isfinite()
    zeroed = torch.where(good, values, 0.0)
    fields = (
        values.isnan().sum(),
        values.isposinf().sum(),
        values.isneginf().sum(),
        torch.where(good, values, torch.inf).amin(),
        torch.where(good, values, -torch.inf).amax(),
        zeroed.sum(),
        zeroed.square().sum(),
    )
    return torch.stack([field.to(torch.float64) for field in fields])
