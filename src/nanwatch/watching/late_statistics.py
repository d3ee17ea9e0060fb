"""Device mode: running statistics and other buffers that a step has changed, looked at on their device. The
host learns a step or two later whether they were finite, without waiting for it, and within a small share of
the time."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import torch

from nanwatch.tensors import is_finite
from nanwatch.tensors.plain_dispatch import plain_dispatch
from nanwatch.watching.lasting_state import Damage, changed_buffers, damage_in

if TYPE_CHECKING:
    from nanwatch.watching.tape import Tape

FIRST_SECONDS = 0.1
SHARE = 0.002
"""What all looks together may take: so long at first, then this share of the time."""


class _Look(NamedTuple):
    step: int
    before: int | None
    """The step after which they were looked at the last time."""
    norms: torch.Tensor
    ready: torch.cuda.Event | None


class LateStatistics:
    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._spent = 0.0
        self._waiting: deque[_Look] = deque()
        self._last: int | None = None
        self._told: dict[int, torch.Tensor] = {}
        """Those that are known to be bad, or to hold infinities on purpose."""

    def look(self, tape: Tape) -> None:
        """At what the calls on this tape have changed."""
        now = time.perf_counter()
        if self._spent > FIRST_SECONDS + SHARE * (now - self._began):
            return
        found = [b for _, _, b in changed_buffers(tape) if id(b) not in self._told]
        device = found[0].device if found else None
        found = [b for b in found if b.device == device]
        if found and not (found[0].is_cuda and torch.cuda.is_current_stream_capturing()):
            self._waiting.append(_Look(tape.step, self._last, *_sent(found)))
            self._last = tape.step
        self._spent += time.perf_counter() - now

    def bad(self, wait: bool) -> tuple[int, int | None] | None:
        """The first step after which something was not finite, and the last before that which was looked
        at."""
        while self._waiting:
            step, before, norms, ready = self._waiting[0]
            if ready is not None and not ready.query():
                if not wait:
                    return None
                ready.synchronize()
            self._waiting.popleft()
            if not math.isfinite(math.fsum(norms.tolist())):
                self._waiting.clear()
                return step, before
        return None

    def first_open(self, step: int) -> int:
        """The first step up to this one of which it is not known yet."""
        return self._waiting[0].step if self._waiting else step

    def damage(self, tape: Tape) -> Damage | None:
        """What it is, to be said once. Waits for the device."""
        kept = [(m, n, b) for m, n, b in changed_buffers(tape) if id(b) not in self._told]
        self._told.update((id(b), b) for _, _, b in kept if not is_finite(b))
        return damage_in(kept, tape)


def _sent(buffers: list[torch.Tensor]) -> tuple[torch.Tensor, torch.cuda.Event | None]:
    with torch.no_grad(), plain_dispatch():
        norms = torch.stack([n.float() for n in torch._foreach_norm(buffers)])
        if not norms.is_cuda:
            return norms, None
        on_host = torch.empty(norms.shape, dtype=norms.dtype, pin_memory=True)
        on_host.copy_(norms, non_blocking=True)
        ready = torch.cuda.Event()
        ready.record()
        return on_host, ready
