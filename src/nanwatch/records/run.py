"""What ran, and one line per step of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Run:
    """`run.json`."""

    command: tuple[str, ...]
    started: str
    versions: dict[str, str]
    devices: tuple[str, ...]
    world_size: int = 1
    policy: str = "raise"
    schema: int = 1


@dataclass(slots=True)
class StepFacts:
    """One line of `steps-rank0.jsonl`: what was cheap to know about this step. (Not frozen: to make a frozen
    one takes three times as long, and one is made in each step.)"""

    step: int
    loss: float | str | None = None
    grad_norm: float | str | None = None
    lr: tuple[float, ...] = ()
    scale: float | None = None
    seconds: float | None = None
    epoch: int | None = None
    """The pass over the data that its last batch belongs to, from 1 on, where a DataLoader gave it."""
    events: tuple[str, ...] = ()
    """In the order they happened: "forward", "backward", "unscale", "clip", "skip", …"""
    facts: dict[str, Any] = field(default_factory=dict)
