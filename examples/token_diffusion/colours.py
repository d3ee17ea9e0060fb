"""Tokens as colours: an id is written in base 256, and each digit becomes one channel of a pixel."""

from __future__ import annotations

import math

import torch

CHANNELS = 2
"""Two digits hold 65,536 ids."""


def colours_of(ids: torch.Tensor) -> torch.Tensor:
    """ids -> ids x channels. Digits that are evenly spread become normally distributed, as the noise is."""
    digits = torch.stack([ids // 256 ** (CHANNELS - 1 - n) for n in range(CHANNELS)], dim=-1)
    digits[..., 1:] %= 256
    share = (digits + 0.5) / 256
    return math.sqrt(2) * torch.erfinv(2 * share - 1)


def ids_of(colours: torch.Tensor) -> torch.Tensor:
    share = (1 + torch.erf(colours.float() / math.sqrt(2))) / 2
    digits = (share * 256).long().clamp(0, 255)
    return sum(digits[..., n] * 256 ** (CHANNELS - 1 - n) for n in range(CHANNELS))
