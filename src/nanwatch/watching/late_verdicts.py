"""Device mode: verdicts that the host learns a step or two late, and what is done when one of them is bad."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.optim import Optimizer

from nanwatch.messages import say
from nanwatch.watching.given_gradients import sum_trained_on
from nanwatch.watching.late_statistics import LateStatistics
from nanwatch.watching.module_state import put_state_back
from nanwatch.watching.of_the_batch import of_the_batch
from nanwatch.watching.sentinel import DeviceSentinel, gradients_of, supports_found_inf
from nanwatch.watching.trouble import Trouble

if TYPE_CHECKING:
    from nanwatch.records import StepFacts
    from nanwatch.watching.tape import Tape
    from nanwatch.watching.watcher import Watcher


class LateVerdicts:
    def __init__(self, watcher: Watcher, mode: str, policy: str) -> None:
        self._watcher = watcher
        self._mode = mode
        self._policy = policy
        self._device = DeviceSentinel()
        self._statistics = LateStatistics()
        self._facts: dict[int, StepFacts] = {}
        """Of steps whose verdict has not come yet."""

    def serve(self, optimizer: Optimizer) -> bool:
        """Whether this optimizer's steps are judged on its device."""
        if self._mode == "host" or not supports_found_inf(optimizer):
            return False
        if self._watcher.scaling.stepping:
            return False  # whether it only looks for its scale must be known before the scale is updated
        if self._mode == "device":
            return True
        if self._policy not in ("raise", "observe"):
            return False  # a verdict that comes late cannot keep schedules and averages from moving on
        return any(p.is_cuda for group in optimizer.param_groups for p in group["params"][:1])

    def judge(self, optimizer: Optimizer, clip_norm: torch.Tensor | None) -> None:
        self.act_on_those_that_came(False)
        watcher, now = self._watcher, self._watcher.now
        now.verdict_is_late = True
        if now.given:
            watcher.backwards.leave_masks_out(sum_trained_on)
        gradients = gradients_of(optimizer)
        now.gradients = len(gradients)
        self._device.guard(
            optimizer,
            now.number,
            now.losses,
            gradients,
            clip_norm,
            watcher.lockstep.agree_on_device if watcher.lockstep.groups else None,
            hold_back=self._policy != "observe",
        )
        if watcher.recorder.tape.changes_buffers:
            self._statistics.look(watcher.recorder.tape)

    def step_is_over(self) -> None:
        self._device.step_is_over()

    def settle(self) -> None:
        """Before the state of an optimizer is read."""
        self._device.settle()

    def keep_until_judged(self, facts: StepFacts) -> None:
        self._facts[facts.step] = facts

    def act_on_those_that_came(self, wait: bool) -> None:
        watcher = self._watcher
        for step, verdict in self._device.past(wait, together=bool(watcher.lockstep.groups)):
            facts = self._facts.pop(step, None)
            if facts is not None:
                facts.loss, facts.grad_norm = verdict.loss, verdict.grad_norm
                watcher.log(facts)
            if verdict.bad is not None:
                self._act_on_bad(step, verdict.bad)
            else:
                watcher.recorder.was_good(min(step, self._statistics.first_open(step)))
        found = self._statistics.bad(wait)
        if found is not None:
            self._act_on_statistics(*found)

    def _act_on_statistics(self, step: int, good_until: int | None) -> None:
        """Loss and gradients were finite, the update was made, and what the step has collected is not."""
        tape, earlier = self._tapes_of(step)
        damage = self._statistics.damage(tape)
        if damage is None:
            return
        damage.by_this_step = False  # what came after it would be lost with it
        trouble = Trouble(step, damage.seen_in, tape, earlier, damage.sinks, damage=damage, prevented=False)
        trouble.notes.append(say("watch.seen_after_the_update"))
        if good_until is not None and good_until < step - 1:
            trouble.notes.append(say("watch.statistics_looked_at", step=good_until))
        outcome = self._watcher.send(trouble)
        if self._watcher.raise_if(outcome) == "rollback":
            self._watcher.roll_back(good_until)

    def _tapes_of(self, step: int) -> tuple[Tape, tuple[Tape, ...]]:
        recorder = self._watcher.recorder
        tapes = [*recorder.finished, recorder.tape]
        tape = next((t for t in tapes if t.step == step), recorder.tape)
        return tape, tuple(t for t in tapes if t.step < step)

    def _act_on_bad(self, step: int, seen_in: str) -> None:
        watcher = self._watcher
        tape, earlier = self._tapes_of(step)
        trouble = Trouble(step, seen_in, tape, earlier)
        trouble.prevented = self._policy != "observe"
        action = watcher.send(trouble)
        if action[0] == "skip":
            put_state_back(reversed(of_the_batch(tape, earlier)))
        self._device.clear()
        for facts in self._facts.values():
            facts.events = (*facts.events, "held-back")
            watcher.log(facts)
        self._facts.clear()
        watcher.lockstep.agreed_late()
        watcher.raise_if(action)
