"""The L2 norm of many CUDA tensors by one kernel over all of them, without waiting for the device.

The kernel reads a small table of addresses and sizes. In a steady training loop the allocator hands out the
same addresses each step, so the table is already on the device and one launch is all that is done.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import Tensor

from nanwatch.tensors import cuda

CHUNK = 1 << 16
UNROLL = 8
WARPS = 8
TABLES_KEPT = 16
BEYOND_ALL_CHUNKS = 1 << 62

Key = tuple[int, tuple[int, ...], tuple[int, ...]]


class Table(NamedTuple):
    """On the device, in three rows: the first chunk of each tensor, its address, its size."""

    rows: Tensor
    columns: int
    chunks: int
    aligned: bool


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
    addresses = list(map(Tensor.data_ptr, rows))
    counts = list(map(Tensor.numel, rows))
    key = (torch._C._cuda_getCurrentRawStream(device.index), tuple(addresses), tuple(counts))
    table = _tables.get(key)
    if table is None:
        table = _tables[key] = _new_table(addresses, counts, device)
        if len(_tables) > TABLES_KEPT:
            _tables.popitem(last=False)
    return table


def _new_table(addresses: list[int], counts: list[int], device: torch.device) -> Table:
    first_chunks, chunks = [], 0
    for count in counts:
        first_chunks.append(chunks)
        chunks += -(-count // CHUNK)
    columns = max(16, 1 << (len(counts) - 1).bit_length())
    empty = [0] * (columns - len(counts))
    beyond = [BEYOND_ALL_CHUNKS] * len(empty)
    pinned = torch.tensor([first_chunks + beyond, addresses + empty, counts + empty], pin_memory=True)
    aligned = not any(address % 16 for address in addresses)
    return Table(pinned.to(device, non_blocking=True), columns, chunks, aligned)
