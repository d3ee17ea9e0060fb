"""What a rank handed to the others, and what it got from them."""

from __future__ import annotations

import torch

from nanwatch.replay.blame import first_harmful
from nanwatch.replay.live import LiveTracer
from nanwatch.replay.trace import Op

COLLECTIVES = ("c10d.", "_c10d_functional.")


def has_other_ranks() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def hands_to_others(op: Op) -> bool:
    return op.name.startswith(COLLECTIVES) and bool(op.bad_inputs)


def others_sent(gradient: torch.Tensor, live: LiveTracer | None) -> bool:
    """Whether the program's own arithmetic on a gradient, averaging over ranks, got it bad already."""
    index = live.writer_of(gradient) if live is not None else None
    if live is None or index is None or not has_other_ranks():
        return False
    blame = first_harmful(live.tracer.trace, [index])
    return blame is not None and blame.outside is not None
