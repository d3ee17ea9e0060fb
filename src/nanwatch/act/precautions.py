"""What a session keeps ready for the day of the fault: the last good state, and an eye on the curves."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from nanwatch.act.alarm import Alarm
from nanwatch.act.early_warning import EarlyWarning
from nanwatch.act.lowering import Lowering, LoweringTogether, say_lowered, scale_rates
from nanwatch.act.policy import Policy
from nanwatch.act.snapshots import LastGood
from nanwatch.messages import say
from nanwatch.tensors import is_finite
from nanwatch.watching.about_models import living
from nanwatch.watching.forbidden import was_so_before
from nanwatch.watching.shield import warn

if TYPE_CHECKING:
    from nanwatch.records import StepFacts
    from nanwatch.watching.watcher import Watcher

NO_GOOD_STEP = frozenset(("skip", "skip-part", "incident", "scaler-skip", "held-back"))


class Precautions:
    """Snapshots where the policy may go back, early warnings always."""

    def __init__(
        self,
        policy: Policy,
        folder: str | os.PathLike[str] | None,
        every: int,
        warnings: bool = True,
        kept: tuple[Any, ...] = (),
    ) -> None:
        """`kept`: objects of the program that go back with the rest."""
        self._policy = policy
        self.last_good = (
            LastGood(*kept, every=every, dir=folder, disk_rests=True) if policy.rollbacks else None
        )
        self._early = EarlyWarning() if warnings else None
        self._rate = 1.0
        """The learning rates of the run are this times the program's."""
        self._rate_at: dict[int, float] = {}
        """Step of a snapshot -> the same then."""
        self._lowering = Lowering(policy.rate_factor if policy.rate_factor < 1 else 0.5)
        self._together: LoweringTogether | None = None
        self._known = 0
        self._went_to: int | None = None
        """The step that was gone back to, until there is a good one again."""

    @property
    def ready(self) -> bool:
        """Whether there is something to go back to."""
        return bool(self._rate_at)

    def step_done(self, facts: StepFacts, watcher: Watcher) -> tuple[Alarm, ...]:
        """After a step that went well. The warnings that it gives rise to."""
        alarms = () if self._early is None else self._early.see(facts, watcher.recorder)
        if self.last_good is not None and not NO_GOOD_STEP & set(facts.events):
            self._went_to = None
            if watcher.updates.turned_up != self._known:
                self._take_along(watcher)
            if self.last_good.step(facts.step):
                self._rate_at[facts.step] = self._rate
        return alarms

    def lower_after(self, alarms: Iterable[Alarm], watcher: Watcher) -> None:
        """As the policy wants: a rise that would overflow is met with a lower rate. Where ranks train
        together, what one sees in its own loss the others may not: it asks them."""
        if not self._policy.lower_rate_on_warning:
            return
        for alarm in (a for a in alarms if a.asks_for_a_lower_rate):
            if not watcher.lockstep.together:
                for change in self._lowering.lower(watcher.updates.active):
                    say_lowered(alarm.step, change)
            elif self._together is not None:
                self._together.ask(alarm)

    def join_ranks(self, watcher: Watcher, tells_why: bool) -> None:
        """Rates are lowered on all ranks or on none. `tells_why`: this rank does not say its warnings."""
        if self._policy.lower_rate_on_warning:
            self._together = LoweringTogether(self._lowering, watcher, self._early, tells_why)
            watcher.lockstep.wishes = self._together

    def roll_back(self, watcher: Watcher, good_until: int | None = None) -> None:
        """Everything as it was in the last good state, but for a lower learning rate. When that has not led
        to a single good step, further back, and on with other random numbers. `good_until`: a state after a
        later step is no good one."""
        if self.last_good is None:
            return
        watcher.lockstep.wish = False  # what it was for is undone
        before = self._went_to if good_until is None else good_until + 1
        step = self.last_good.rollback(random=self._went_to is None, before=before)
        self._went_to = step
        self._rate *= self._policy.rate_factor
        lower = self._rate / self._rate_at.get(step, 1.0)
        for optimizer in watcher.updates.active:
            scale_rates(optimizer, lower)
        rate = "watch.rate_is_lower" if self._rate != 1.0 else "watch.rate_as_before"
        warn(say("watch.rolled_back", step=step, rate=say(rate, factor=f"{self._rate:g}")))

    def bad_state(self, watcher: Watcher) -> list[tuple[str, torch.Tensor]]:
        """What a snapshot has shown not to be finite, though no loss and no gradient did: a statistic, a
        moment. Not where ranks train together: the others do not know."""
        if self.last_good is None or self.last_good.refused is None or watcher.lockstep.groups:
            return []
        self.last_good.refused = None
        models = [e.call for e in watcher.recorder.tape.entries if isinstance(e.call, nn.Module)]
        named = [(n, t) for m in models for n, t in (*m.named_parameters(), *m.named_buffers())]
        for optimizer in watcher.updates.active:
            for state in optimizer.state.values():
                named += [(n, t) for n, t in state.items() if isinstance(t, torch.Tensor)]
        bad = [(name, t.detach()) for name, t in named if t.is_floating_point() and not is_finite(t)]
        return [(name, tensor) for name, tensor in bad if not was_so_before(tensor)]

    def close(self) -> None:
        if self.last_good is not None:
            self.last_good.close()

    def _take_along(self, watcher: Watcher) -> None:
        """The objects that training changes: models that were called, optimizers, schedules, scalers and
        averages. Looked for again when another optimizer has turned up."""
        if self._known and self.last_good is not None:
            self.last_good.forget_the_dead()
        self._known = watcher.updates.turned_up
        optimizers = watcher.updates.active
        models = [e.call for e in watcher.recorder.tape.entries if isinstance(e.call, nn.Module)]
        every = living(LRScheduler, torch.amp.GradScaler, AveragedModel)
        scheduled = [s for s in every if isinstance(s, LRScheduler)]
        schedules = [s for s in scheduled if any(getattr(s, "optimizer", None) is o for o in optimizers)]
        scalers = [s for s in every if isinstance(s, torch.amp.GradScaler) and s.is_enabled()]
        averages = [
            a
            for a in every
            if isinstance(a, AveragedModel)
            and "module" in a._modules  # else its making has failed
            and any(_alike(a.module, m) for m in models)
            and all(map(is_finite, a.parameters()))
        ]  # one that is not finite while all is well is of another training
        found: list[Any] = [*models, *optimizers, *schedules, *scalers, *averages]
        if self.last_good is not None:
            self.last_good.add(*found)


def _alike(average: nn.Module, model: nn.Module) -> bool:
    return [p.shape for p in average.parameters()] == [p.shape for p in model.parameters()]
