"""`checksums`: two whole numbers for each tensor that tell later which one of its values has changed.

The bits of a tensor are read as words of at most four bytes. The first sum is that of the words, the second
that of each word times its place. When one word changes, the first moves by the change, and the second by
that times its place: so both the place and the value before are known. Modulo 2^64.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nanwatch.tensors import compiled

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32, 16: torch.int32}
"""Bytes of a value -> the words it is read as."""
COLUMNS = 1024
MODULUS = 1 << 64

Checksum = tuple[int, int]


class Rows(NamedTuple):
    """Contiguous tensors in host memory, and how they lie there: looked up once, read often."""

    tensors: Sequence[Tensor]
    addresses: Sequence[int]
    words: Sequence[int]
    """How many words each has."""
    widths: Sequence[int]
    """Bytes of a word."""


def checksums(tensors: Sequence[Tensor]) -> list[Checksum]:
    """Of contiguous tensors in host memory, as they lie there."""
    widths = [width_of(tensor) for tensor in tensors]
    words = [t.numel() * (t.element_size() // width) for t, width in zip(tensors, widths, strict=True)]
    return checksums_of(Rows(tensors, [t.data_ptr() for t in tensors], words, widths))


def checksums_of(rows: Rows) -> list[Checksum]:
    library = compiled.library()
    if library is None:
        return [_by_torch(tensor) for tensor in rows.tensors]
    columns = array("q", rows.addresses), array("q", rows.words), array("B", rows.widths)
    out = array("Q", bytes(16 * len(rows.tensors)))
    places = [column.buffer_info()[0] for column in (*columns, out)]
    library.nanwatch_checksums(*places[:3], len(rows.tensors), places[3], torch.get_num_threads())
    return list(zip(out[::2], out[1::2], strict=True))


def width_of(tensor: Tensor) -> int:
    return min(tensor.element_size(), 4)


def moved(before: Checksum, now: Checksum) -> tuple[int, int]:
    """By how much each of the sums has moved, as signed numbers."""
    return _signed(now[0] - before[0]), _signed(now[1] - before[1])


def _by_torch(tensor: Tensor) -> Checksum:
    with torch.no_grad():
        words = tensor.detach().reshape(-1).view(WORDS[tensor.element_size()])
        whole = len(words) // COLUMNS * COLUMNS
        table, rest = words[:whole].view(-1, COLUMNS), words[whole:].to(torch.int64)
        columns, rows = table.sum(0, dtype=torch.int64), table.sum(1, dtype=torch.int64)
        total = rows.sum() + rest.sum()
        weighted = _by_place(columns) + COLUMNS * _by_place(rows) + _by_place(rest) + whole * rest.sum()
    return int(total) % MODULUS, int(weighted) % MODULUS


def _by_place(sums: Tensor) -> Tensor:
    return (sums * torch.arange(len(sums), device=sums.device)).sum()


def _signed(number: int) -> int:
    return (number + MODULUS // 2) % MODULUS - MODULUS // 2
