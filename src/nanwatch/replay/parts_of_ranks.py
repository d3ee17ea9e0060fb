"""The good micro-batches of a step that several ranks train together (DDP): kept on all of them.

Each rank makes its good ones again without the wrapper, which would wait for the others, and the gradients
are averaged as the wrapper does it, bucket by bucket. Where the wrapper averages only after the last
micro-batch (`no_sync`), a rank leaves out its own bad ones; where it averages after each, all ranks leave out
the same. Before each thing that they do together the ranks ask each other whether all can.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from nanwatch.replay.good_parts import GoodParts, good_or_all, made_without, parts_of
from nanwatch.tensors import is_finite
from nanwatch.watching.module_calls import ModuleCalls
from nanwatch.watching.ranks import Lockstep, is_replicated
from nanwatch.watching.sentinel import weights_of
from nanwatch.watching.tape import Entry, Tape

Gradients = dict[int, torch.Tensor]
Alone = Callable[[], contextlib.AbstractContextManager[Any]]
"""A context in which nothing waits for other ranks: it fails instead."""


def good_parts_of_ranks(
    tape: Tape,
    earlier: tuple[Tape, ...],
    calls: ModuleCalls,
    lockstep: Lockstep,
    optimizer: Optimizer,
    alone: Alone,
    can: bool = True,
    after_scaler: bool = False,
) -> GoodParts | None:
    """None, on all ranks, when one of them cannot. Every rank must call it. `can`: whether this one could put
    them in; `after_scaler`: for a GradScaler that has left the step out and is to be asked again, which is
    possible only if that of every rank has."""
    layout = _without_fail(lambda: _layout(tape, lockstep)) if can else None
    if not lockstep.all_can(layout is not None) or layout is None:
        return None
    if not layout.same_on_all_ranks(after_scaler):
        return None
    layout.share_statistics()
    found = _without_fail(lambda: _dry_run(tape, earlier, calls, alone))
    bad = layout.left_out(found, lockstep)
    if bad is None:
        return None
    made = _without_fail(lambda: made_without(bad, tape, earlier, calls))
    if not lockstep.all_can(made is not None and _covers(made, optimizer)) or made is None:
        return None
    made.gradients = layout.averaged(made, bad)
    return made if all(is_finite(g) for g in made.gradients.values()) else None


class _Layout:
    """Which micro-batches there are, and what the wrapper exchanges in each."""

    def __init__(self, replica: Any, calls: list[Entry]) -> None:
        self._replica = replica
        self._buffers = [b for b in calls[0].buffers if b[1] in b[0]._buffers]
        self._averages = [call.exchange[0] for call in calls if call.exchange is not None]
        self._shares = [call.exchange[1] for call in calls if call.exchange is not None]
        self.count = len(calls)

    @property
    def possible(self) -> bool:
        replica = self._replica
        special = ("_comm_hooks", "mixed_precision", "_use_python_reducer", "static_graph")
        plain = not any(getattr(replica, name, None) for name in special)
        plain = plain and hasattr(replica.reducer, "_get_zeros_like_grad_buckets")
        changing = bool(self._buffers) and any(self._shares[1:])
        return plain and len(self._averages) == self.count > 1 and self._averages[-1] and not changing

    @property
    def _averages_often(self) -> bool:
        return any(self._averages[:-1])

    def same_on_all_ranks(self, after_scaler: bool) -> bool:
        pattern = sum(2**i for i, averages in enumerate(self._averages) if averages)
        facts = [self.count, pattern % 2**31, len(self._buffers), int(self._shares[0]), after_scaler]
        most = self._most([*facts, *(-fact for fact in facts)])
        return [-number for number in most[len(facts) :]] == most[: len(facts)]

    def share_statistics(self) -> None:
        """The first call began with the first rank's."""
        if self._shares[0]:
            group = self._replica.process_group
            first = torch.distributed.get_process_group_ranks(group)[0]
            for _, _, before in self._buffers:
                torch.distributed.broadcast(before, first, group)

    def left_out(self, found: GoodParts | None, lockstep: Lockstep) -> set[int] | None:
        """Which parts this rank does without; None when it cannot be done."""
        if not lockstep.all_can(found is not None) or found is None:
            return None
        if not self._averages_often:
            return set(found.bad)
        most = self._most([int(part in found.bad) for part in range(self.count)])
        bad = {part for part, is_bad in enumerate(most) if is_bad}
        return bad if len(bad) < self.count else None

    def averaged(self, made: GoodParts, bad: set[int]) -> Gradients:
        """As the wrapper does it: what has been accumulated, after the parts that it averages after."""
        accumulated: Gradients = {}
        kept = iter(made.by_part)
        for part, averages in enumerate(self._averages):
            for key, gradient in (next(kept) if part not in bad else {}).items():
                had = accumulated.get(key)
                accumulated[key] = gradient if had is None else had + gradient
            if averages and (part not in bad or not self._averages_often):
                accumulated = self._average(accumulated)
        return {key: accumulated[key] for key in made.gradients}

    def _average(self, gradients: Gradients) -> Gradients:
        replica = self._replica
        group = replica.process_group
        size = group.size()
        found = dict(gradients)  # what the wrapper does not hold is each rank's own
        with torch.no_grad():
            for bucket in replica.reducer._get_zeros_like_grad_buckets():
                views = list(zip(bucket.parameters(), bucket.gradients(), strict=True))
                for parameter, view in views:
                    gradient = gradients.get(id(parameter), view)
                    if replica.gradient_as_bucket_view:
                        view.copy_(gradient).div_(size)
                    else:
                        view.copy_(gradient * (1.0 / size))
                torch.distributed.all_reduce(bucket.buffer(), group=group)
                found.update((id(parameter), view.clone()) for parameter, view in views)
        return found

    def _most(self, numbers: list[int]) -> list[int]:
        """The largest of all ranks, of each."""
        group = self._replica.process_group
        device = next(self._replica.parameters()).device
        there = torch.tensor(numbers, dtype=torch.int64, device=device)
        torch.distributed.all_reduce(there, torch.distributed.ReduceOp.MAX, group)
        most: list[int] = there.tolist()
        return most


def _layout(tape: Tape, lockstep: Lockstep) -> _Layout | None:
    """None where a part is anything else than one call of one wrapper, the same for all."""
    if tape.lacks_parts:
        return None
    calls = [
        [e for e in part if isinstance(e.call, nn.Module) and e.phase == "forward"] for part in parts_of(tape)
    ]
    replicas: dict[int, Any] = {id(e.call): e.call for part in calls for e in part}
    if len(replicas) != 1 or any(len(part) != 1 for part in calls) or len(lockstep.groups) != 1:
        return None
    (replica,) = replicas.values()
    if not is_replicated(replica):
        return None
    layout = _Layout(replica, [part[0] for part in calls])
    return layout if layout.possible else None


def _dry_run(tape: Tape, earlier: tuple[Tape, ...], calls: ModuleCalls, alone: Alone) -> GoodParts | None:
    """Which parts are bad, and whether they can be made again by one rank. Its bits do not count: the context
    may change the last ones."""
    with alone():
        return good_or_all(tape, earlier, calls)


def _covers(made: GoodParts, optimizer: Optimizer) -> bool:
    """Whether there is a gradient for each weight that has one, and for no other."""
    return {id(p) for p in weights_of(optimizer) if p.grad is not None} == set(made.gradients)


def _without_fail(work: Callable[[], Any]) -> Any:
    """What goes wrong on one rank must not keep the others waiting."""
    try:
        return work()
    except Exception:
        return None
