"""What outlives a step and may be bad though its loss and its gradients are finite: a weight or a moment that
the memory has changed, a statistic that is only read in an evaluation. Looked at before each update."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import nn

from nanwatch.tensors import is_finite, norms_by_device
from nanwatch.watching.about_models import is_metric
from nanwatch.watching.fingerprints import Changed, Fingerprints
from nanwatch.watching.module_state import put_state_back, tensor_of
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, Tape, tensors_in
from nanwatch.watching.torch_functions import changes_its_input, written_to

if TYPE_CHECKING:
    from nanwatch.watching.recorder import Recorder

STATISTICS = ("running_mean", "running_var")
"""None of their values may be infinite. In other buffers (a mask, a largest value so far) one may, no NaN."""


@dataclass
class Damage:
    turned: Changed | None = None
    """One value in memory."""
    statistics: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    by_this_step: bool = False
    """The statistics were good before this step: without it they are good again."""

    @property
    def seen_in(self) -> str:
        return "weights" if self.turned is None else "memory"

    @property
    def sinks(self) -> list[tuple[str, torch.Tensor]]:
        found = [] if self.turned is None else [(self.turned.name, self.turned.tensor.detach())]
        return found + self.statistics

    @property
    def good_until(self) -> int | None:
        """The last step after which all was well, if that is known."""
        return None if self.turned is None else self.turned.step


class LastingState:
    def __init__(self, recorder: Recorder, fingerprints: Fingerprints) -> None:
        self._recorder = recorder
        self._fingerprints = fingerprints
        self._told: dict[int, torch.Tensor] = {}
        """Statistics that are known to be bad."""

    def damage(self, step: int) -> Damage | None:
        """Found since the last update and not said yet."""
        turned = self._fingerprints.about_to_update(step) if self._fingerprints.due else None
        if turned is not None and not self._written_by_the_program(turned.tensor):
            return Damage(turned)
        tape = self._recorder.tape
        return self._bad_statistics(tape) if tape.changes_buffers else None

    def tell(self, damage: Damage) -> None:
        """It has been said, or comes of what was said, and nobody went back: it is not said again."""
        self._told.update((id(t), t) for _, t in damage.statistics)
        if damage.turned is not None:
            self._fingerprints.accept(damage.turned)

    def mend(self, damage: Damage) -> None:
        """Call by call back to when the statistics were good: what was collected before stays."""
        for entry in reversed(self._recorder.tape.entries):
            if all(is_finite(statistic) for _, statistic in damage.statistics):
                break
            put_state_back([entry])

    def _written_by_the_program(self, tensor: torch.Tensor) -> bool:
        """Through `.data`, which torch does not count, but the tape has it."""
        key = key_of(tensor)
        tapes = [*self._recorder.finished, self._recorder.tape]
        return any(_writes(entry, key) for tape in tapes for entry in tape.entries)

    def _bad_statistics(self, tape: Tape) -> Damage | None:
        """On the host only: to look at a GPU's is to wait for it."""
        if self._told:
            self._told = {key: b for key, b in self._told.items() if not is_finite(b)}
        kept = [(m, n, b) for m, n, b in changed_buffers(tape) if id(b) not in self._told and b.is_cpu]
        if not kept or math.isfinite(sum(map(float, norms_by_device([b for _, _, b in kept])))):
            return None
        return damage_in(kept, tape)


def damage_in(kept: list[tuple[nn.Module, str, torch.Tensor]], tape: Tape) -> Damage | None:
    """Of these buffers that the calls on a tape have changed: those that are bad, and were not."""
    before = {(id(m), n): value for e in reversed(tape.entries) for m, n, value in e.buffers}
    bad = [(m, n, b) for m, n, b in kept if _went_bad(n, b, before[id(m), n])]
    if not bad:
        return None
    names = {
        id(b): name
        for e in tape.entries
        if isinstance(e.call, nn.Module)
        for name, b in e.call.named_buffers()
    }
    damage = Damage(statistics=[(names.get(id(b), name), b) for _, name, b in bad])
    damage.by_this_step = all(is_finite(before[id(m), n]) for m, n, _ in bad)
    return damage


def _went_bad(name: str, now: torch.Tensor, before: torch.Tensor) -> bool:
    if is_finite(now):
        return False
    return name in STATISTICS or bool(now.isnan().any() and not before.isnan().any())


def changed_buffers(tape: Tape) -> Iterator[tuple[nn.Module, str, torch.Tensor]]:
    """The buffers that the calls on the tape have changed, each once; not what metrics add up."""
    seen: set[int] = set()
    for entry in tape.entries:
        for module, name, _ in entry.buffers:
            buffer = tensor_of(module, name)
            if buffer is None or not buffer.is_floating_point() or id(buffer) in seen or is_metric(module):
                continue
            seen.add(id(buffer))
            yield module, name, buffer


def _writes(entry: Entry, key: int) -> bool:
    if entry.kind != "write" and not changes_its_input(entry.call, entry.kwargs):
        return False
    return any(key_of(t) == key for t in tensors_in(written_to(entry.args, entry.kwargs)))
