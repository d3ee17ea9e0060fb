"""All that can be set about a training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    steps: int = 60
    texts: int = 48
    batch_size: int = 4
    vocabulary: int = 5_000
    dim: int = 16
    heads: int = 2
    blocks: int = 2
    norm_eps: float = 1e-6
    norm_in_float32: bool = True
    scale_before_product: bool = True
    noise_steps: int = 32
    first_signal: float = 0.98
    last_signal: float = 0.02
    draw_evenly: bool = False
    distance: str = "squared"
    rate: float = 3e-3
    clip: float = 1.0
    clip_first: bool = False
    precision: str = "fp16"
    seed: int = 0
