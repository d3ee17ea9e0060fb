"""The curve of a learning rate: up over the warm-up, then down along a cosine."""

from __future__ import annotations

import math

WARMUP_SHARE = 10
MOST_WARMUP = 2000


def usual_warmup(total_steps: int) -> int:
    """Without a wish: a tenth of all steps, and no more than 2000."""
    return min(total_steps // WARMUP_SHARE, MOST_WARMUP)


def share_of_rate(step: int, total_steps: int, warmup_steps: int) -> float:
    """The rate of a step, counted from 0, as a share of the highest one."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if step >= total_steps:
        return 0.0
    return 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / (total_steps - warmup_steps)))
