"""The state of torch's generator on the CPU, read anew only when it has changed.

To ask torch for it copies five kilobytes, at every call of a model, though most steps on a GPU draw nothing
there. A few bytes of the generator's memory tell whether the state is still the one that was read last: those
before its words (seed, position) with the first words, and those behind its words (the last words, and normal
numbers that are in store). Where that memory is not as expected, torch is asked each time.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable

import torch
from torch import Generator, Tensor

COUNT = 624
"""Words of a Mersenne twister."""
IN_STATE = 24
"""Bytes before the words in the state that torch gives, which has each word in eight bytes."""
BEFORE, BEHIND = 20, 24
"""Bytes of the generator that belong to its state, before its words and behind them."""
SOME_WORDS = 12
"""Bytes of the words that are looked at on each side."""
LOWEST_ADDRESS = 1 << 16
FARTHEST = 256
"""Bytes of a generator before its words, at most. (All that is read is within the words themselves then.)"""


class CpuGenerator:
    """`state` is what `get_state` of the generator gives; not to be written to."""

    def __init__(self, generator: Generator) -> None:
        self._ask: Callable[[], Tensor] = generator.get_state
        self._seen: tuple[bytes, bytes] | None = None
        self._state = self._ask()
        self.sides = _sides_of(generator, self._state) if _can_be_read() else None

    def state(self) -> Tensor:
        if self.sides is None:
            return self._ask()
        before, behind = self.sides
        seen = before.tobytes(), behind.tobytes()
        if seen != self._seen:
            self._seen, self._state = seen, self._ask()
        return self._state


def _sides_of(generator: Generator, state: Tensor) -> tuple[memoryview, memoryview] | None:
    """The memory before and behind the generator's words, with some of them."""
    first = struct.pack("<4I", *struct.unpack_from("<4Q", _bytes_of(state), IN_STATE))
    address = ctypes.c_uint64.from_address(id(generator) + object.__basicsize__).value
    if address < LOWEST_ADDRESS or address % 8:
        return None
    words = bytes((ctypes.c_char * FARTHEST).from_address(address)).find(first)
    if words < BEFORE:
        return None
    behind = words + 4 * COUNT
    return (
        _memory(address + words - BEFORE, BEFORE + SOME_WORDS),
        _memory(address + behind - SOME_WORDS, SOME_WORDS + BEHIND),
    )


def _memory(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _bytes_of(state: Tensor) -> bytes:
    return ctypes.string_at(state.data_ptr(), state.numel())


def _can_be_read() -> bool:
    """Whether one of our own, drawn from in every way that leaves something behind, is seen to change each
    time that it does."""
    own = Generator()
    own.manual_seed(0)
    sides = _sides_of(own, own.get_state())
    if sides is None:
        return False
    state, seen = b"", [b"", b""]
    for draw in DRAWS:
        draw(own)
        now, new = _bytes_of(own.get_state()), [side.tobytes() for side in sides]
        if (now == state) or (new == seen):
            return False
        state, seen = now, new
    return True


DRAWS: tuple[Callable[[Generator], object], ...] = (
    lambda own: torch.rand(1, generator=own, device="cpu"),
    lambda own: torch.randn(1, generator=own, device="cpu"),
    lambda own: torch.randn(1, generator=own, device="cpu"),
    lambda own: torch.randn(1, generator=own, dtype=torch.float64, device="cpu"),
    lambda own: torch.rand(COUNT, generator=own, device="cpu"),
    lambda own: torch.randn(1, generator=own, dtype=torch.float64, device="cpu"),
    lambda own: own.manual_seed(1),
    lambda own: torch.randint(9, (3,), generator=own, device="cpu"),
    lambda own: own.set_state(Generator().get_state()),
)
