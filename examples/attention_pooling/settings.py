"""All that can be set about a training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    epochs: int = 5
    bags: int = 96
    batch_size: int = 8
    drop_last: bool = True
    keep: float = 1.0
    dim: int = 16
    chunked: bool = False
    score_bound: float | None = 10.0
    temperature: float = 1.0
    optimizer: str = "adamw"
    rate: float = 1e-2
    warmup: int = 10
    clip: float = 1.0
    one_vs_rest: bool = False
    entropy_weight: float = 0.0
    precision: str = "no"
    resume: Path | None = None
    seed: int = 6
