"""The L2 norm of many CUDA tensors by one kernel over all of them, without waiting for the device.

The kernel reads two small tables: how the tensors are cut into chunks, which is the same in every step, and
where they are.
"""

from __future__ import annotations

import contextlib
import ctypes
from array import array
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nanwatch.tensors import cuda, standing_orders
from nanwatch.tensors.cuda_launch import Launch
from nanwatch.tensors.memory import FLOATS
from nanwatch.tensors.rows import Places
from nanwatch.tensors.standing_orders import StandingOrder

CHUNK = 1 << 16
UNROLL = 8
WARPS = 8
TABLES_KEPT = 16
LETTERS = 16
ANSWER_WORDS = 2
BEYOND_ALL_CHUNKS = 1 << 62
LOSSES = frozenset((torch.float32, torch.bfloat16, torch.float16))

Key = tuple[int, int, bytes]
"""The device, a stream, and how many values each tensor has."""


class Answer(NamedTuple):
    """What a device has said, three float32 in host memory: whether a step was bad, its loss, its norm.
    `ready`: the event after which it is there, or None."""

    values: Tensor
    ready: Any
    numbers: Any
    """The same memory, as Python reads it without torch."""

    @staticmethod
    def of(values: Tensor, ready: Any) -> Answer:
        return Answer(values, ready, (ctypes.c_float * 3).from_address(values.data_ptr()))


class Letter(NamedTuple):
    """Pinned host memory, which the kernel itself writes its answer to, and behind that looks up an address
    for each chunk: quicker for the host than to send copies."""

    memory: Tensor
    at: int
    """Where it is."""
    answer: Answer
    event: int
    """The driver's, of the answer."""


class Mail:
    """Letters, the oldest first: the next can be written while the last are still to be read and answered."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._letters = deque(self._new() for _ in range(LETTERS))

    def _new(self) -> Letter:
        pinned = torch.empty(ANSWER_WORDS + self._size, dtype=torch.int64, pin_memory=True)
        ready = torch.cuda.Event()
        ready.record()  # before that the driver has none
        answer = Answer.of(pinned[:ANSWER_WORDS].view(torch.float32)[:3], ready)
        return Letter(pinned, pinned.data_ptr(), answer, ready.cuda_event)

    def next(self) -> Letter:
        """A new one if no other was answered yet: nobody waits."""
        letter = self._letters[0]
        if letter.answer.ready.query():
            self._letters.rotate(-1)
        else:
            letter = self._new()
            self._letters.append(letter)
        return letter

    def write(self, addresses: array[int]) -> Letter:
        letter = self.next()
        ctypes.memmove(letter.at + 8 * ANSWER_WORDS, addresses.buffer_info()[0], 8 * len(addresses))
        return letter

    def close(self) -> None:
        """Others may be given this memory: not before it was read, which torch cannot know of."""
        for letter in self._letters:
            letter.answer.ready.synchronize()


class Constants(NamedTuple):
    """What the kernel is compiled for, by the names and in the order that it has them."""

    JUDGE: bool
    LARGEST: float
    TENSORS: int
    CHUNK: int
    STORED: Any
    REAL: Any
    ALIGNED: bool
    TILE: int
    UNROLL: int


class Kernel:
    """Launches the kernel with these constants. The first launch finds it, compiled, and others launch what
    was found: triton takes longer to find it again."""

    def __init__(self, programs: int, constants: Constants) -> None:
        self._programs = programs
        self._constants = constants
        self.found: Launch | None = None
        self._is_looked_for = True

    def launch(self, given: tuple[Tensor, ...], stream: int) -> None:
        if self.found is not None and self.found([tensor.data_ptr() for tensor in given], stream):
            return
        module = cuda.kernels()
        assert module is not None
        found = module.squares_kernel[self._programs,](*given, **self._constants._asdict(), num_warps=WARPS)
        if self._is_looked_for:
            self._is_looked_for = False
            with contextlib.suppress(ValueError, OSError, AttributeError, TypeError):
                self.found = Launch(found, self._programs, len(given))


@dataclass
class Table:
    """On the device: the first chunk of each tensor and its size, in two rows; room for the parts of the sum,
    and a counter behind them."""

    rows: Tensor
    columns: int
    chunks: int
    parts: Tensor
    mail: Mail
    stream: torch.cuda.Stream
    kernels: dict[tuple[int, torch.dtype | None, bool], Kernel] = field(default_factory=dict)
    """By the type of the values, that of the loss if it judges one, and whether all rows are aligned."""


_tables: OrderedDict[Key, Table] = OrderedDict()


def norm_of_rows(rows: list[Tensor], device: torch.device) -> Tensor:
    """A 0-dim float32 tensor. Every row is contiguous memory of a dtype in FLOATS."""
    if not rows:
        return torch.zeros((), dtype=torch.float32, device=device)
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    for row in rows:
        by_dtype.setdefault(row.dtype, []).append(row)
    if not can_launch():
        return _norm_by_foreach(by_dtype)
    norms = [norm_of_places(_places(dtype, group), device) for dtype, group in by_dtype.items()]
    return norms[0] if len(norms) == 1 else _joined(norms)


def norm_of_places(places: Places, device: torch.device) -> Tensor:
    norm = torch.empty((), dtype=torch.float32, device=device)
    _launch(places, device, norm, None)
    return norm


def latch_places(places: Places, loss: Tensor, kept: Tensor) -> Answer:
    """Of `kept`, three float32 on the device: the first becomes 1 unless loss and norm are finite, and stays
    so; the others become the loss, of one of LOSSES, and the norm. They are the answer too, until a few more
    have been asked for."""
    return _launch(places, kept.device, kept, loss)


def can_launch() -> bool:
    """In a graph that is captured, addresses would be those of the capture for ever."""
    return cuda.kernels() is not None and not torch.cuda.is_current_stream_capturing()


def _places(dtype: torch.dtype, rows: list[Tensor]) -> Places:
    addresses, counts = array("q", map(Tensor.data_ptr, rows)), array("q", map(Tensor.numel, rows))
    return Places(addresses, counts, FLOATS.index(dtype), not any(map((15).__and__, addresses)))


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


def _launch(places: Places, device: torch.device, out: Tensor, loss: Tensor | None) -> Answer:
    with cuda.on_device(device.index):
        table = _table(places.counts, device)
        letter = table.mail.write(places.addresses)
        given = table.rows, letter.memory, table.parts, out, out if loss is None else loss
        kind = places.type, None if loss is None else loss.dtype, places.aligned
        kernel = table.kernels.get(kind)
        if kernel is None:
            constants = constants_for(places.type, loss is not None, places.aligned, table.columns)
            kernel = table.kernels[kind] = Kernel(table.chunks, constants)
        kernel.launch(given, table.stream.cuda_stream)
        letter.answer.ready.record(table.stream)
        if loss is not None and kernel.found is not None:
            order = kernel.found.order([tensor.data_ptr() for tensor in given], table.stream.cuda_stream)
            read, loss_type = (table.rows, table.parts), FLOATS.index(loss.dtype)
            standing_orders.keep(StandingOrder(order, places, loss_type, table.mail, out, read))
    return letter.answer


def constants_for(number: int, judge: bool, aligned: bool, columns: int) -> Constants:
    module, dtype = cuda.kernels(), FLOATS[number]
    assert module is not None
    return Constants(
        JUDGE=judge,
        LARGEST=torch.finfo(torch.float32).max,
        TENSORS=columns,
        CHUNK=CHUNK,
        STORED=getattr(module.tl, str(dtype).removeprefix("torch.")),
        REAL=module.tl.float64 if dtype is torch.float64 else module.tl.float32,
        ALIGNED=aligned,
        TILE=cuda.TILE_BYTES // dtype.itemsize,
        UNROLL=UNROLL,
    )


def _table(counts: array[int], device: torch.device) -> Table:
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    key = (device.index, stream, counts.tobytes())
    table = _tables.get(key)
    if table is None:
        table = _tables[key] = _new_table(counts, device)
        if len(_tables) > TABLES_KEPT:
            _, oldest = _tables.popitem(last=False)
            oldest.mail.close()
    return table


def _new_table(counts: array[int], device: torch.device) -> Table:
    rows, columns, chunks = cut(counts)
    parts = torch.zeros(chunks + 1, dtype=torch.float64, device=device)
    stream = torch.cuda.current_stream(device)
    return Table(rows.to(device), columns, chunks, parts, Mail(len(counts)), stream)


def cut(counts: array[int]) -> tuple[Tensor, int, int]:
    """The two rows of a table, how many columns they have, and into how many chunks all tensors are cut."""
    first_chunks, chunks = [], 0
    for count in counts:
        first_chunks.append(chunks)
        chunks += -(-count // CHUNK)
    columns = max(16, 1 << (len(counts) - 1).bit_length())
    empty = columns - len(counts)
    rows = array("q", [*first_chunks, *[BEYOND_ALL_CHUNKS] * empty, *counts, *[0] * empty])
    return torch.frombuffer(rows, dtype=torch.int64), columns, chunks
