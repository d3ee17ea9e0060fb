"""Learning rates that are lowered before an overflow: by a process that trains alone, or by all ranks that
train together, at the same update and by the same factor."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from nanwatch.act.alarm import Alarm, bounded_factor
from nanwatch.act.early_warning import EarlyWarning
from nanwatch.messages import say
from nanwatch.watching.about_models import living
from nanwatch.watching.shield import warn

if TYPE_CHECKING:
    from nanwatch.watching.watcher import Watcher

RATES = ("lr", "initial_lr", "max_lr", "min_lr")
"""Settings of a parameter group that are learning rates: schedules keep theirs there."""
RATES_OF_SCHEDULE = ("base_lrs", "_last_lr", "max_lrs", "min_lrs", "eta_min")
LOWEST = 1e-3
"""A warning never brings a rate below this share of what it was at the first warning."""

Change = tuple[float, float]
"""The highest rate of an optimizer, before and after."""


class Lowering:
    """Lowers rates by `factor`, and knows how far each may fall."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._lowest: weakref.WeakKeyDictionary[Optimizer, float] = weakref.WeakKeyDictionary()
        """An optimizer -> the rate below which no warning brings it."""

    def lower(self, optimizers: Iterable[Optimizer]) -> list[Change]:
        """What has become lower: nothing where all are as low as they may be."""
        changes = []
        for optimizer in optimizers:
            rate = max((float(g["lr"]) for g in optimizer.param_groups if "lr" in g), default=0.0)
            lowest = self._lowest.setdefault(optimizer, LOWEST * rate)
            factor = bounded_factor(rate, lowest, self._factor)
            if factor < 1:
                scale_rates(optimizer, factor)
                changes.append((rate, rate * factor))
        return changes


class LoweringTogether:
    """The same where ranks train together: the rank that is warned asks all in the next exchange of verdicts.
    All ranks do it then, before that update is made, or none does (`watching/ranks.py`: `Wishes`)."""

    def __init__(
        self, lowering: Lowering, watcher: Watcher, early: EarlyWarning | None, tells_why: bool
    ) -> None:
        """`tells_why`: the warnings of this rank are not said by themselves."""
        self._lowering, self._watcher, self._early = lowering, watcher, early
        self._tells_why = tells_why
        self._given_up = False
        """Some rank could not: from then on no rank asks again."""
        self._alarm: Alarm | None = None
        """What this rank asks because of."""
        self._asked_by: int | None = None
        """None: this rank."""
        self._changes: list[Change] = []
        self._before: list[Callable[[], object]] = []

    def ask(self, alarm: Alarm) -> None:
        """Not while ranks may run out of data (`join`): nobody is asked then."""
        lockstep = self._watcher.lockstep
        if not self._given_up and lockstep.groups:
            self._alarm, lockstep.wish = alarm, True

    def honour(self, rank: int | None) -> bool:
        optimizers = self._watcher.updates.active
        self._asked_by = rank
        self._before = [put_back for optimizer in optimizers for put_back in _rates_now(optimizer)]
        self._changes = self._lowering.lower(optimizers)
        return True

    def settle(self, by_all: bool) -> None:
        before, self._before = self._before, []
        changes, self._changes = self._changes, []
        asked_by, self._asked_by = self._asked_by, None
        alarm, self._alarm = self._alarm, None
        if alarm is not None and asked_by is None and self._tells_why and (changes or not by_all):
            warn(alarm.sentence())
        if by_all:
            self._all_have(changes, asked_by)
        else:
            self._give_up(before)

    def _all_have(self, changes: list[Change], asked_by: int | None) -> None:
        if not changes:
            return
        step = self._watcher.step
        self._watcher.event("rate-lowered")
        if self._early is not None:
            self._early.begin_anew(step)
        for change in changes:
            say_lowered(step, change, asked_by)

    def _give_up(self, before: list[Callable[[], object]]) -> None:
        for put_back in before:
            put_back()
        if not self._given_up:
            self._given_up = True
            warn(say("early.rate_not_lowered", step=self._watcher.step))


def say_lowered(step: int, change: Change, asked_by: int | None = None) -> None:
    """`asked_by`: the other rank that was warned."""
    before, after = (f"{rate:g}" for rate in change)
    if asked_by is None:
        warn(say("early.rate_lowered", step=step, before=before, after=after))
    else:
        warn(say("early.rate_lowered_by_rank", step=step, before=before, after=after, rank=asked_by))


def scale_rates(optimizer: Any, factor: float) -> None:
    """The learning rates of an optimizer and of its schedules, from here on times `factor`."""
    if factor == 1:
        return
    for group in optimizer.param_groups:
        for name in RATES:
            if isinstance(group.get(name), (int, float)):
                group[name] *= factor
    for rate in _tensors_among_rates(optimizer):
        rate.mul_(factor)
    for schedule in _schedules_of(optimizer):
        for name in RATES_OF_SCHEDULE:
            rates = getattr(schedule, name, None)
            if isinstance(rates, list):
                setattr(schedule, name, [r * factor if isinstance(r, (int, float)) else r for r in rates])
            elif isinstance(rates, (int, float)):
                setattr(schedule, name, rates * factor)


def _rates_now(optimizer: Any) -> list[Callable[[], object]]:
    """Calls that put back all that `scale_rates` changes, to the bit."""
    calls: list[Callable[[], object]] = [
        partial(rate.copy_, rate.clone()) for rate in _tensors_among_rates(optimizer)
    ]
    for group in optimizer.param_groups:
        numbers = {name: group[name] for name in RATES if isinstance(group.get(name), (int, float))}
        calls.append(partial(group.update, numbers))
    for schedule in _schedules_of(optimizer):
        own = vars(schedule)
        calls.append(partial(own.update, {name: own[name] for name in RATES_OF_SCHEDULE if name in own}))
    return calls


def _tensors_among_rates(optimizer: Any) -> list[torch.Tensor]:
    """Each once: the groups of an optimizer share the one that it was made with."""
    rates = [group[name] for group in optimizer.param_groups for name in RATES if name in group]
    return list({id(rate): rate for rate in rates if isinstance(rate, torch.Tensor)}.values())


def _schedules_of(optimizer: Any) -> list[Any]:
    return [schedule for schedule in living(LRScheduler) if schedule.optimizer is optimizer]
