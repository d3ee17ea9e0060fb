"""The L2 norm of many CUDA tensors by one kernel over all of them, without waiting for the device.

The kernel reads a small table: how the tensors are cut into chunks, which is the same in every step, and
where they are, which is sent along when it has changed.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor

from nanwatch.tensors import cuda

CHUNK = 1 << 16
UNROLL = 8
WARPS = 8
TABLES_KEPT = 16
LETTERS = 8
BEYOND_ALL_CHUNKS = 1 << 62

Key = tuple[int, int, tuple[int, ...]]


class Mail:
    """Numbers on their way to the device: pinned memory, its copy there, and an event when it has arrived. A
    few of each, so that the next can be written while the last is still on its way."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._letters = [
            (
                torch.empty(size, dtype=torch.int64, pin_memory=True),
                torch.empty(size, dtype=torch.int64, device=device),
                torch.cuda.Event(),
            )
            for _ in range(LETTERS)
        ]
        self._turn = 0

    def send(self, numbers: array[int]) -> Tensor:
        pinned, there, arrived = self._letters[self._turn]
        self._turn = (self._turn + 1) % LETTERS
        arrived.synchronize()
        pinned.copy_(torch.frombuffer(numbers, dtype=torch.int64))
        there.copy_(pinned, non_blocking=True)
        arrived.record()
        return there


@dataclass
class Table:
    """On the device: the first chunk of each tensor and its size, in two rows; and the addresses."""

    rows: Tensor
    columns: int
    chunks: int
    mail: Mail
    sent: array[int] | None = None
    addresses: Tensor | None = None
    aligned: bool = True


_tables: OrderedDict[Key, Table] = OrderedDict()


def norm_of_rows(rows: list[Tensor], device: torch.device) -> Tensor:
    """A 0-dim float32 tensor. Every row is contiguous memory of a dtype in FLOATS."""
    if not rows:
        return torch.zeros((), dtype=torch.float32, device=device)
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    for row in rows:
        by_dtype.setdefault(row.dtype, []).append(row)
    if cuda.kernels() is None or torch.cuda.is_current_stream_capturing():
        return _norm_by_foreach(by_dtype)
    with cuda.on_device(rows[0].get_device()):
        norms = [_norm_by_table(dtype, group, device) for dtype, group in by_dtype.items()]
    return norms[0] if len(norms) == 1 else _joined(norms)


def _norm_by_foreach(by_dtype: dict[torch.dtype, list[Tensor]]) -> Tensor:
    norms: list[Tensor] = []
    for dtype, rows in by_dtype.items():
        wide = torch.float64 if dtype is torch.float64 else torch.float32
        norms += torch._foreach_norm(rows, 2, wide)
    if len({norm.dtype for norm in norms}) > 1:
        norms = [norm.to(torch.float64) for norm in norms]
    return _joined(norms)


def _joined(norms: list[Tensor]) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm.to(torch.float32)


def _norm_by_table(dtype: torch.dtype, rows: list[Tensor], device: torch.device) -> Tensor:
    module = cuda.kernels()
    assert module is not None
    table = _table(rows, device)
    norm = torch.empty((), dtype=torch.float32, device=device)
    module.squares_kernel[(table.chunks,)](
        table.rows,
        table.addresses,
        torch.zeros(table.chunks + 1, dtype=torch.float64, device=device),
        norm,
        TENSORS=table.columns,
        CHUNK=CHUNK,
        STORED=getattr(module.tl, str(dtype).removeprefix("torch.")),
        REAL=module.tl.float64 if dtype is torch.float64 else module.tl.float32,
        ALIGNED=table.aligned,
        TILE=cuda.TILE_BYTES // dtype.itemsize,
        UNROLL=UNROLL,
        num_warps=WARPS,
    )
    return norm


def _table(rows: list[Tensor], device: torch.device) -> Table:
    counts = tuple(map(Tensor.numel, rows))
    key = (device.index, torch._C._cuda_getCurrentRawStream(device.index), counts)
    table = _tables.get(key)
    if table is None:
        table = _tables[key] = _new_table(counts, device)
        if len(_tables) > TABLES_KEPT:
            _tables.popitem(last=False)
    addresses = array("q", map(Tensor.data_ptr, rows))
    if addresses != table.sent:
        table.sent, table.addresses = addresses, table.mail.send(addresses)
        table.aligned = not any(map((15).__and__, addresses))
    return table


def _new_table(counts: tuple[int, ...], device: torch.device) -> Table:
    first_chunks, chunks = [], 0
    for count in counts:
        first_chunks.append(chunks)
        chunks += -(-count // CHUNK)
    columns = max(16, 1 << (len(counts) - 1).bit_length())
    empty = columns - len(counts)
    rows = array("q", [*first_chunks, *[BEYOND_ALL_CHUNKS] * empty, *counts, *[0] * empty])
    table = torch.frombuffer(rows, dtype=torch.int64).to(device)
    return Table(table, columns, chunks, Mail(len(counts), device))
