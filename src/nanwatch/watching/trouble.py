"""What the watcher hands over when a step went bad: facts and references, nothing worked out yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from nanwatch.watching.fingerprints import Fingerprints
from nanwatch.watching.last_updates import LastUpdate
from nanwatch.watching.lasting_state import Damage
from nanwatch.watching.module_calls import Scope
from nanwatch.watching.stack import Stack
from nanwatch.watching.storages import Storages
from nanwatch.watching.tape import Tape


@dataclass
class Trouble:
    """One bad step. `sinks` are the non-finite tensors that showed it, with what they are called."""

    step: int
    seen_in: str
    """"loss", "gradients", "output", "weights", "exception", "trace" or "checkpoint"."""
    tape: Tape
    earlier: tuple[Tape, ...] = ()
    sinks: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    optimizer: Any = None
    scaler_search: bool = False
    """A GradScaler skipped this step: an incident only if the gradients are bad without its scale too."""
    device_lost: bool = False
    """Nothing on the device can be read or run any more."""
    live: LiveTrace | None = None
    notes: list[str] = field(default_factory=list)
    last_updates: tuple[LastUpdate, ...] = ()
    """Of each optimizer, the latest first."""
    arrivals: Storages[Stack] | None = None
    """memory that came in without any op -> where."""
    handed_out: Storages[Stack] | None = None
    """memory that something else than torch was given -> where."""
    events: tuple[str, ...] = ()
    """The order of calls in this step: forward, scale, backward, unscale, clip, step."""
    threads: tuple[str, ...] = ()
    """Other threads that ran code of the program when the step was found to be bad."""
    readings: dict[int, tuple[int, int]] = field(default_factory=dict)
    """id of a tensor that the step read -> its version and checksum then."""
    fingerprints: Fingerprints | None = None
    """What weights, buffers and moments held when the program last wrote them."""
    epoch: int | None = None
    """The pass over the data, from 1 on, where a DataLoader gave the batch."""
    parts: bool = False
    """The gradients are those of several micro-batches, of which the good ones could be kept."""
    good_parts: Any = None
    """What the step is without its bad micro-batches (`replay.good_parts.GoodParts`), if they were kept."""
    prevented: bool = True
    """Nothing bad has been written into the weights yet."""
    damage: Damage | None = None
    """What the step was made with was bad before it, or is now."""

    @property
    def last_update(self) -> LastUpdate | None:
        return self.last_updates[0] if self.last_updates else None

    @property
    def can_be_skipped(self) -> bool:
        """Whether all is well without this step."""
        mends = self.damage is not None and self.damage.by_this_step
        return self.prevented and (mends or self.seen_in in ("loss", "gradients", "rank"))

    @property
    def damaged(self) -> bool:
        """Whether it was bad already before this step."""
        return self.damage is not None and not self.damage.by_this_step


Report = Callable[[Trouble], str | None]
"""Explains a trouble; returns "raise", "skip" or "observe", or None when it was no trouble after all."""


class LiveTrace(Protocol):
    """An op tracer that runs along with the program for a while."""

    scope: Scope
    phase: str
    active: bool
    """It is to look at this step."""
    on: bool
    """It is looking, or only blind for a while."""

    def root_returned(self) -> None: ...

    @property
    def ops_seen(self) -> int: ...
    @property
    def small_budget(self) -> tuple[float, float]: ...
    def was_loss_since(self, seen: int) -> None: ...
    def was_a_layer(self, root: Any) -> None: ...
    def begin_step(self, step: int) -> bool: ...

    def count_back(self, steps: int) -> None: ...
    def resume(self) -> None: ...
    def pause(self) -> None: ...
    def looks_away(self) -> bool: ...
    def end_step(self, good: bool) -> None: ...
    def bad_update(self, optimizer: Any, of_a_good_step: bool) -> bool: ...
    def tell_errors_to(self, give_up: Callable[[BaseException], None]) -> None: ...
    def silent_damage(self) -> bool: ...
    def facts(self) -> dict[str, Any]: ...
    def look_again(self) -> None: ...
    def leave_for_good(self) -> bool: ...
