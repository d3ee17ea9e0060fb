"""`numbers` and `many_numbers`: what a tensor holds, on the host, for any tensor whatever."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from nanwatch.records import Numbers
from nanwatch.signals import let_through
from nanwatch.tensors import cpu, cuda
from nanwatch.tensors.memory import parts_of, real_pieces, without_repeats
from nanwatch.tensors.plain_dispatch import plain_dispatch
from nanwatch.tensors.tally import Tally, added

VALUES_PER_SCALED_PIECE = 1 << 20


def numbers(t: Tensor, name: str | None = None) -> Numbers:
    """The numbers of one tensor. Never raises: a tensor without readable values (meta, fake, freed, or on a
    device whose stream is being captured) gets counts of 0 and no extremes."""
    tally = cpu.tally_of_row(t)
    if tally is None or tally.sums_are_lost:
        return many_numbers([t], [name])[0]
    return _described(t, [t], [tally], name)


def many_numbers(tensors: Iterable[Tensor], names: Sequence[str | None] | None = None) -> list[Numbers]:
    """The numbers of each tensor, waiting once for each device they are on."""
    tensors = list(tensors)
    with plain_dispatch():
        parts = [_parts_or_none(t) for t in tensors]
        measured = _on_the_host([_measured(part) for below in parts for part in below or ()])
        result = []
        for index, (t, below) in enumerate(zip(tensors, parts, strict=True)):
            tallies = [measured.pop(0) for _ in below or ()]
            result.append(_described(t, below, tallies, names[index] if names is not None else None))
        return result


def tally_of(t: Tensor) -> Tally | None:
    """The tally of any tensor; None when it has no readable values."""
    with plain_dispatch():
        parts = _parts_or_none(t)
        if parts is None:
            return None
        tallies = _on_the_host([_measured(part) for part in parts])
        return None if None in tallies else added(tally for tally in tallies if tally is not None)


def _parts_or_none(t: Tensor) -> list[Tensor] | None:
    try:
        return parts_of(t)
    except Exception as error:
        let_through(error)
        return None


def _measured(part: Tensor) -> Tally | Tensor | None:
    """A tally, or the vector on the device that will become one."""
    try:
        if part.is_cpu:
            return cpu.tally(part)
        if not part.is_cuda:
            return cpu.tally(part.cpu())
        return None if torch.cuda.is_current_stream_capturing() else cuda.statistics(part)
    except Exception as error:
        let_through(error)
        return None


def _on_the_host(measured: list[Tally | Tensor | None]) -> list[Tally | None]:
    read: dict[int, Tally] = {}
    waiting: dict[torch.device, list[int]] = {}
    for index, part in enumerate(measured):
        if isinstance(part, Tensor):
            waiting.setdefault(part.device, []).append(index)
    for indices in waiting.values():
        rows = torch.stack([part for i in indices if isinstance(part := measured[i], Tensor)])
        read.update((i, Tally(*row)) for i, row in zip(indices, rows.tolist(), strict=True))
    return [read.get(i) if isinstance(part, Tensor) else part for i, part in enumerate(measured)]


def _described(
    t: Tensor, parts: list[Tensor] | None, tallies: list[Tally | None], name: str | None
) -> Numbers:
    about = (_shape(t), str(t.dtype).removeprefix("torch."), _device(t))
    known = [tally for tally in tallies if tally is not None]
    if parts is None or len(known) < len(tallies):
        return Numbers(*about, count=math.prod(about[0]) if min(about[0], default=0) >= 0 else 0, name=name)
    total, count = added(known), sum(part.numel() for part in parts)
    bad = (int(total.nan), int(total.posinf), int(total.neginf))
    if total.lo > total.hi:
        return Numbers(*about, count, *bad, name=name)
    mean, norm = _mean_and_norm(total, count - total.bad, parts)
    return Numbers(*about, count, *bad, min=total.lo, max=total.hi, mean=mean, norm=norm, name=name)


def _mean_and_norm(total: Tally, good: int, parts: list[Tensor]) -> tuple[float, float]:
    if not total.sums_are_lost:
        return total.sum / good, math.sqrt(total.sumsq)
    scale = max(abs(total.lo), abs(total.hi))
    scaled = added(_scaled_sums(part, scale) for part in parts)
    return scaled.sum / good * scale, math.sqrt(scaled.sumsq) * scale


def _scaled_sums(part: Tensor, scale: float) -> Tally:
    """The sums of values divided by the largest: a second pass, for squares that float64 cannot hold."""
    part, copies = without_repeats(part)
    total = squares = 0.0
    for row in real_pieces(part, VALUES_PER_SCALED_PIECE):
        for block in torch.split(row, VALUES_PER_SCALED_PIECE):
            values = block.to(torch.float64) / scale
            values = values[values.isfinite()]
            total += float(values.sum())
            squares += float(values.square().sum())
    return Tally(sum=total * copies, sumsq=squares * copies)


def _shape(t: Tensor) -> tuple[int, ...]:
    """-1 stands for a size that is not one number: ragged rows, or symbolic."""
    try:
        return tuple(_plain_int(size) for size in t.shape)
    except Exception as error:
        let_through(error)
        return tuple(_ragged_size(t, dim) for dim in range(t.dim()))


def _plain_int(size: object) -> int:
    return size if type(size) is int else -1


def _ragged_size(t: Tensor, dim: int) -> int:
    try:
        return int(t.size(dim))
    except Exception:
        return -1


def _device(t: Tensor) -> str:
    return str(t.device)
