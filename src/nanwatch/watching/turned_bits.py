"""Which value of a tensor changed, and whether a fault of the memory did it rather than the program.

A program may write to its weights in ways that nobody counts: through `.data`, through NumPy, from another
process. What it writes so differs in many bits of many values, or is a round number. Called a turned bit is
only what no program writes: one bit high in the exponent of one single value that is not round, with nothing
else changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

MANTISSA = {torch.float64: 52, torch.float32: 23, torch.bfloat16: 7, torch.float16: 10}
"""Bits of the mantissa; those of the exponent are above it, the sign is the last."""
WHOLE = {2: torch.int16, 4: torch.int32, 8: torch.int64}
HIGH = 4
"""From this bit of the exponent on: it makes the value 2^16 times as large or as small, or more."""


@dataclass(frozen=True)
class Flipped:
    """One value, and what it was before some of its bits were turned over."""

    place: tuple[int, ...]
    value: float
    bits: int
    """A one for each of them."""
    before: float

    @property
    def bit(self) -> int:
        """The highest of them."""
        return self.bits.bit_length() - 1


def flipped_at(tensor: torch.Tensor, word: int, difference: int, words: torch.dtype) -> Flipped | None:
    """The value whose word at this place has moved by `difference`; None where that cannot be."""
    if tensor.dtype not in MANTISSA:
        return None
    with torch.no_grad():
        row = tensor.detach().reshape(-1)
        in_words = row.view(words)
        limit = torch.iinfo(words)
        now = int(in_words[word])
        if not limit.min <= now - difference <= limit.max:
            return None
        each = in_words.numel() // row.numel()
        index = word // each
        value = row[index : index + 1]
        before = value.clone()
        before.view(words)[word % each] = now - difference
        whole = WHOLE[tensor.element_size()]
        bits = int(value.view(whole)) ^ int(before.view(whole))
        bits %= 1 << 8 * tensor.element_size()
        return Flipped(place_of(index, tensor.shape), float(value), bits, float(before))


def no_program_writes(one: Flipped, dtype: torch.dtype) -> bool:
    """Whether only a fault makes this of that."""
    if one.bits.bit_count() != 1 or not math.isfinite(one.before) or one.before == 0:
        return False
    mantissa = MANTISSA[dtype]
    sign = 8 * dtype.itemsize - 1
    return mantissa + HIGH <= one.bit < sign and not _round(one.before, mantissa)


def _round(value: float, bits: int) -> bool:
    """A power of two, or one and a half times it, a quarter more: what people write."""
    fraction, _ = math.frexp(abs(value))
    return int(fraction * (1 << bits + 1)).bit_count() <= 2


def place_of(index: int, shape: torch.Size) -> tuple[int, ...]:
    places = []
    for length in reversed(shape):
        places.append(index % length)
        index //= length
    return tuple(reversed(places))
