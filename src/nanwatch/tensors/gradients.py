"""`norms_by_device`: one number that is not finite when some gradient is not: the watcher's hot path."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from operator import attrgetter

import torch
from torch import Tensor

from nanwatch.tensors import compiled, cuda, cuda_norm, standing_orders
from nanwatch.tensors.cpu import TYPE_NUMBERS
from nanwatch.tensors.measure import tally_of
from nanwatch.tensors.memory import FLOATS, flat_memory, parts_of
from nanwatch.tensors.plain_dispatch import plain_dispatch
from nanwatch.tensors.rows import PLAIN_TYPES, Places, places_of, read_at_once

FLOAT_DTYPES = frozenset(FLOATS)
STRIDED = frozenset({torch.strided})

LOWEST_ADDRESS = 1 << 31
"""Of a GPU's memory, by far: less is the offset of a tensor of zeros that has none."""
LARGEST = torch.finfo(torch.float32).max

_dtype_of, _layout_of, _is_nested, _is_on_host = (
    attrgetter(name) for name in ("dtype", "layout", "is_nested", "is_cpu")
)


def norms_by_device(tensors: Iterable[Tensor]) -> list[float | Tensor]:
    """One number for each device that holds a gradient: their total L2 norm. On the host's it is a float; on
    another device a 0-dim float32 tensor that nobody has waited for.

    It is not finite when some gradient is not, and also, in rare cases, when finite gradients are so large
    that their norm (on CUDA: the square of one chunk's norm) does not fit float32: confirm with `is_finite`.
    No tensors give an empty list. May be called while a CUDA graph is captured.
    """
    gradients = tensors if isinstance(tensors, list) else list(tensors)
    library = compiled.library()
    if library is not None and (read := read_at_once(library, gradients)) is not None:
        return [_norm_out_of(read[0])]
    with plain_dispatch():
        if gradients and all(map(_is_on_host, gradients)):
            return [_norm_on_host(gradients)]
        by_device: dict[torch.device, list[Tensor]] = {}
        for t in gradients:
            by_device.setdefault(t.device, []).append(t)
        return [
            _norm_on_cuda(device, group) if device.type == "cuda" else _norm_on_host(group)
            for device, group in by_device.items()
        ]


def numbers_and_norm(numbers: Sequence[Tensor], tensors: list[Tensor]) -> list[float] | None:
    """The value of each of `numbers`, then the norm of `tensors` as `norms_by_device` gives it, if all are
    plain floats in host memory."""
    library = compiled.library()
    read = None if library is None else read_at_once(library, tensors, numbers)
    if read is not None:
        squares = read[-1]
        read[-1] = math.sqrt(squares) if squares <= LARGEST else _norm_out_of(squares)
    return read


def norm_and_verdict(tensors: Iterable[Tensor]) -> list[Tensor]:
    """`norms_by_device`, each as a 0-dim float32 tensor."""
    found = norms_by_device(tensors)
    with plain_dispatch():
        return [n if isinstance(n, Tensor) else torch.tensor(n, dtype=torch.float32) for n in found]


def latch(gradients: list[Tensor], loss: Tensor, kept: Tensor) -> cuda_norm.Answer | None:
    """`kept` is three float32 in a GPU's memory: whether a step was bad, its loss, and its norm. One kernel
    brings them up to these gradients and this loss, and nobody waits for it; the answer, the same three on
    the host, is there until a few more have been asked for. None, and nothing is done, unless the gradients
    are plain floats of one type on that GPU, and the loss is a float of at most 32 bits there."""
    library = compiled.library()
    answer = None if library is None else standing_orders.answer_for(library, gradients, loss, kept)
    if answer is not None:
        return answer  # type: ignore[no-any-return]
    if type(loss) not in PLAIN_TYPES or loss.dtype not in cuda_norm.LOSSES or loss.device != kept.device:
        return None
    if not loss.is_cuda or loss.numel() != 1 or not loss.data_ptr():
        return None
    if not cuda_norm.can_launch():
        return None
    places = _places_of(gradients, kept.get_device())
    if places is None:
        return None
    with plain_dispatch():
        return cuda_norm.latch_places(places, loss, kept)


def _places_of(gradients: list[Tensor], gpu: int) -> Places | None:
    library = compiled.library()
    found = None if library is None or not gradients else places_of(library, gradients, gpu)
    return None if found is None or min(found.addresses) < LOWEST_ADDRESS else found


def _norm_on_cuda(device: torch.device, gradients: list[Tensor]) -> Tensor:
    places = _places_of(gradients, device.index) if cuda_norm.can_launch() else None
    if places is not None:
        return cuda_norm.norm_of_places(places, device)
    rows, others = _plain_rows(gradients)
    return _with_others_on_cuda(cuda_norm.norm_of_rows(rows, device), others)


def _norm_on_host(gradients: list[Tensor]) -> float:
    rows, others = _plain_rows(gradients)
    if rows and not rows[0].is_cpu:
        rows, others = [], gradients
    return _norm_out_of(_squares_on_the_host(rows) + sum(_squares_of_any(g) for g in others))


def _norm_out_of(squares: float) -> float:
    norm = math.sqrt(squares)
    return norm if norm <= LARGEST else norm * math.inf


def _plain_rows(gradients: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The gradients whose values fill float memory without gaps, and those that need a closer look."""
    if _all_are_plain(gradients):
        return gradients, []
    rows, others = [], []
    for g in gradients:
        row = _plain_row(g)
        if row is None:
            others.append(g)
        else:
            rows.append(row)
    return rows, others


def _all_are_plain(gradients: list[Tensor]) -> bool:
    """The usual case, asked column by column: a loop in C costs half of one in Python."""
    return (
        PLAIN_TYPES.issuperset(map(type, gradients))
        and FLOAT_DTYPES.issuperset(map(_dtype_of, gradients))
        and STRIDED.issuperset(map(_layout_of, gradients))
        and not any(map(_is_nested, gradients))
        and all(map(Tensor.is_contiguous, gradients))
        and all(map(Tensor.data_ptr, gradients))
        and not any(map(Tensor.storage_offset, gradients))
    )


def _plain_row(g: Tensor) -> Tensor | None:
    if (
        type(g) not in PLAIN_TYPES
        or g.dtype not in FLOAT_DTYPES
        or g.layout is not torch.strided
        or g.is_nested
        or g._is_zerotensor()  # which has no memory, and tells its offset as its address
    ):
        return None
    if not g.data_ptr() or not g.untyped_storage().nbytes():
        return None
    return g if g.is_contiguous() else flat_memory(g)


def _squares_on_the_host(rows: list[Tensor]) -> float:
    library = compiled.library()
    if library is None:
        return sum(map(_squares_by_torch, rows))
    addresses, counts = array("q", map(Tensor.data_ptr, rows)), array("q", map(Tensor.numel, rows))
    types = array("B", [TYPE_NUMBERS[row.dtype] for row in rows])
    places = [column.buffer_info()[0] for column in (addresses, counts, types)]
    squares: float = library.nanwatch_squares(*places, len(rows), torch.get_num_threads())
    return sum(map(_squares_by_torch, rows)) if squares < 0 else squares


def _squares_by_torch(row: Tensor) -> float:
    """The quickest pass torch has, and a careful one when that overflowed or met a bad value."""
    row = row.view(-1)
    if row.element_size() > 2:
        squares = float(torch.dot(row, row))
    else:
        squares = float(torch.linalg.vector_norm(row, dtype=torch.float32)) ** 2
    return squares if math.isfinite(squares) else _squares_of_any(row)


def _squares_of_any(t: Tensor) -> float:
    tally = tally_of(t)
    if tally is None:
        return 0.0
    return math.nan if tally.bad else tally.sumsq


def _with_others_on_cuda(norm: Tensor, others: list[Tensor]) -> Tensor:
    if not others:
        return norm
    squares = norm.to(torch.float64).square()
    for other in others:
        for part in parts_of(other) or ():
            vector = cuda.statistics(part)
            squares = squares + torch.where(vector[:3].sum() > 0, torch.nan, vector[6])
    return squares.sqrt().to(torch.float32)
