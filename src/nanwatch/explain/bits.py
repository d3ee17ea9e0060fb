"""The bits of a value: NaN that no arithmetic makes, and large values that one bit makes of ordinary ones."""

from __future__ import annotations

import torch

from nanwatch.watching.turned_bits import Flipped, place_of

WORDS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
QUIET_NANS = {
    torch.float32: (0x7FC00000, -0x400000, 0x7F800001, 0x7FFFFFFF),
    torch.float16: (0x7E00, -0x200, 0x7FFF),
    torch.bfloat16: (0x7FC0, -0x40, 0x7FFF),
}
"""The NaN that processors and Python make, as signed words; the last also by converting and by devices."""

TOP_BITS = {torch.float32: (30, 29, 28, 27), torch.float16: (14, 13), torch.bfloat16: (14, 13, 12, 11)}
"""The highest bits of the exponent."""

SIGN_BITS = {torch.float32: 31, torch.float16: 15, torch.bfloat16: 15}
OUTLIER = 1e6
"""How many times the next largest value a damaged one is, at least."""


def odd_nans(tensor: torch.Tensor) -> str | None:
    """The bit pattern, in hexadecimal, of a NaN in the tensor that no arithmetic makes; None if all are
    usual. Bytes that are not what was written look like this."""
    dtype = tensor.dtype
    if dtype not in WORDS:
        return None
    flat = tensor.detach().reshape(-1)
    words = flat[torch.isnan(flat)].view(WORDS[dtype])
    usual = torch.tensor(QUIET_NANS[dtype], dtype=words.dtype, device=words.device)
    odd = words[~torch.isin(words, usual)]
    if not odd.numel():
        return None
    width = 8 * words.element_size()
    return f"0x{int(odd[0]) % (1 << width):0{width // 4}x}"


def flipped_bit(tensor: torch.Tensor) -> Flipped | None:
    """The one value in the tensor that is out of all proportion, if one bit of its exponent makes it so:
    with that bit as it was, it is a value like the others."""
    dtype = tensor.dtype
    flat = tensor.detach().reshape(-1)
    if dtype not in WORDS or flat.numel() < 4:
        return None
    sizes = flat.float().abs()
    if not bool(torch.isfinite(sizes).all()):
        return None  # what made that is another question
    top = torch.topk(sizes, 2)
    largest, second = float(top.values[0]), float(top.values[1])
    if second <= 0 or largest < OUTLIER * second:
        return None
    at = int(top.indices[0])
    typical = float(sizes[sizes > 0].median())
    for bit in TOP_BITS[dtype]:
        before = with_bit(flat[at : at + 1], bit)
        if typical / 1e3 <= abs(before) <= max(second, typical * 10):
            return Flipped(place_of(at, tensor.shape), float(flat[at]), 1 << bit, before)
    return None


def with_bit(value: torch.Tensor, bit: int) -> float:
    """The single value with one bit turned over."""
    words = value.detach().clone().view(WORDS[value.dtype])
    mask = 1 << bit
    width = 8 * words.element_size()
    words ^= mask - (1 << width) if bit == width - 1 else mask
    return float(words.view(value.dtype))
