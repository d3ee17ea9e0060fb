"""The optimizer's part of a step: judged before it begins, held back if it must not happen."""

from __future__ import annotations

import math
import time
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from nanwatch.messages import say
from nanwatch.tensors import is_finite
from nanwatch.tensors.rows import PLAIN_TYPES
from nanwatch.watching.about_models import living
from nanwatch.watching.aftermath import Aftermath
from nanwatch.watching.clips import Clips
from nanwatch.watching.closures import Closures, closure_among
from nanwatch.watching.forbidden import note_before_training, was_infinite_before, was_so_before
from nanwatch.watching.held_back import Copies, EmptyGroups, held_back, replace_by_zero
from nanwatch.watching.last_updates import LastUpdate, LastUpdates
from nanwatch.watching.lasting_state import Damage, LastingState
from nanwatch.watching.late_verdicts import LateVerdicts
from nanwatch.watching.layers import facts_of
from nanwatch.watching.module_state import put_state_back
from nanwatch.watching.of_the_batch import of_the_batch
from nanwatch.watching.sentinel import LATE_STEPS, Verdict, found_inf, gradients_of, weights_of
from nanwatch.watching.stack import Stack, take_stack
from nanwatch.watching.step import Step

if TYPE_CHECKING:
    from nanwatch.watching.watcher import Watcher

SMALL = 2**16
"""So many values of a parameter or buffer, at most."""

IN_A_ROW = 4
"""After so many bad steps one after the other a model's own counters stay where they are."""


class Updates:
    """Follows every optimizer of the program."""

    def __init__(self, watcher: Watcher, mode: str, policy: str) -> None:
        self._watcher = watcher
        self._policy = policy
        self.late = LateVerdicts(watcher, mode, policy)
        self.clips = Clips(watcher)
        self._closures = Closures(watcher, self)
        self._held: EmptyGroups | Copies | None = None
        self._inner: list[EmptyGroups | Copies] = []
        """Of others that one which is held back steps inside."""
        self._inside_its_own = 0
        """How many steps are under way inside another one of the same optimizer."""
        self.optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._made: dict[int, int] = {}
        """id of an optimizer -> how many updates it has made."""
        self.aftermath = Aftermath(watcher)
        self.lasting = LastingState(watcher.recorder, watcher.fingerprints)
        self.last: LastUpdate | None = None
        self.last_of_each = LastUpdates()
        self._left_out: int | None = None
        """The last step whose batch was left out."""
        self._skipped_in_a_row, self._skipped_last = 0, -2
        self._rates: tuple[Any, ...] = ()
        """Of the step that is under way."""
        self.stack: Stack = ()
        """Where the program called the step that is under way."""

    @property
    def holds_back(self) -> bool:
        """Whether a bad step is to leave nothing behind."""
        return self._policy == "skip"

    @property
    def _step(self) -> Step:
        return self._watcher.now

    def made(self, optimizer: Optimizer) -> None:
        """One that is new here has made no update, even if another had its id before."""
        if optimizer not in self.optimizers:
            self._made.pop(id(optimizer), None)
            self.optimizers.add(optimizer)

    def averaged(self, average: AveragedModel) -> None:
        self.aftermath.averaged(average, self._made)

    def gradients_were_cleared(self) -> bool:
        """Whether the program has thrown all gradients of the last backwards away: with some an update may
        still be made, or something else (an adversarial example)."""
        zeroed = self._step.zeroed
        pending = (p for o in self.optimizers if id(o) not in zeroed for p in weights_of(o))
        if any(p.grad is not None for p in pending):
            return False
        cleared = {id(p) for o in self.optimizers if id(o) in zeroed for p in weights_of(o)}
        tape = self._watcher.recorder.tape
        others = (t for t in (*tape.used.values(), *tape.made.values()) if id(t) not in cleared)
        return not any(map(_has_a_gradient, others))

    def weights_held(self) -> list[torch.Tensor]:
        """By any optimizer of the program."""
        return [p for optimizer in self.optimizers for p in weights_of(optimizer)]

    @property
    def active(self) -> list[Optimizer]:
        """The optimizers that have made an update, the first one first."""
        living = {id(optimizer): optimizer for optimizer in self.optimizers}
        return [living[key] for key in self._made if key in living]

    @property
    def turned_up(self) -> int:
        """How many optimizers have made an update."""
        return len(self._made)

    # A step

    def begins(self, optimizer: Optimizer, args: Any, kwargs: Any, frame: Any) -> Any:
        """Returns the arguments to call the step with, or None for those it has."""
        watcher, now = self._watcher, self._watcher.now
        if now.updating and _is_inside_the_step_of(optimizer, frame):
            self._inside_its_own += 1
            return None
        self._inside_its_own = 0
        if now.updating and self._is_inside_a_skipped_one(optimizer, frame):
            self._inner.append(held_back(optimizer))
            return None
        on_device = self.late.serve(optimizer)
        if watcher.lockstep.together:
            watcher.lockstep.step_begins(on_device)
        if self._held is not None:
            self.give_back()
        if watcher.outputs.trial is not None:
            watcher.outputs.judge_trial()
        if self.aftermath.still:
            self.aftermath.step_begins(optimizer)
        if self.last is None or self.last.optimizer() is not optimizer:
            self.made(optimizer)
            late = LATE_STEPS if on_device else 0
            watcher.recorder.remember(max(1, min(4, len(self.optimizers))), late)
            if id(optimizer) not in self._made:
                self._before_the_first_update(optimizer)
        now.updating = True
        self.stack = take_stack(frame)
        self._rates = tuple([group.get("lr") for group in optimizer.param_groups])
        now.events.append("step")
        watcher.outside.stand_aside()
        for rate in self._rates:
            if isinstance(rate, float) and not math.isfinite(rate):
                self._judge_hyperparameters(optimizer)
                break
        closure, replaced = closure_among(args, kwargs) if len(args) > 1 or kwargs else None, None
        if closure is not None:
            replaced = self._closures.watched(closure, optimizer, args, kwargs)
        else:
            self._judge(optimizer, on_device)
        if watcher.live is not None and (watcher.live.active or watcher.live.on):
            watcher.trace_the_update()
        return replaced

    def _before_the_first_update(self, optimizer: Optimizer) -> None:
        if self.holds_back:
            self.aftermath.first_update(optimizer)
        watcher = self._watcher
        if watcher.by_hand:
            watcher.by_hand = False
            watcher.backwards.count_from_here()
        models = [e.call for e in watcher.recorder.tape.entries if isinstance(e.call, nn.Module)]
        buffers = [buffer for model in models for buffer in model.buffers()]
        note_before_training([*weights_of(optimizer), *buffers])
        if not self._made:
            note_before_training(_small_parts_of_all_modules(), of_copies_too=False)

    def _is_inside_a_skipped_one(self, optimizer: Optimizer, frame: Any) -> bool:
        """Whether an optimizer that is held back, or whose closure went bad, calls this one to make its
        update."""
        outer = self._closures.copies or self._held
        if outer is None or outer.optimizer is optimizer or "skip" not in self._step.events:
            return False
        return _is_inside_the_step_of(outer.optimizer, frame)

    def done(self, optimizer: Optimizer) -> None:
        watcher, now = self._watcher, self._watcher.now
        if self._inside_its_own:
            self._inside_its_own -= 1
            return
        if self._inner:
            inner = self._inner.pop()
            inner.give_back()
            if inner.optimizer is optimizer:
                return
        verdict = now.verdict
        if self._held is not None:
            self.give_back()
        if self._closures.copies is not None:
            self._closures.put_copies_back()
        if now.verdict_is_late:
            self.late.step_is_over()
            optimizer.__dict__.pop("found_inf", None)
        now.updating = False
        if "skip" not in now.events:
            self._made[id(optimizer)] = self._made.get(id(optimizer), 0) + 1
        self._note_update(optimizer, verdict.grad_norm)
        live, clock = watcher.live, time.perf_counter()
        if live is not None and live.active:
            live.pause()
            if live.bad_update(optimizer, of_a_good_step=verdict.bad is None):
                self._went_bad(optimizer, [])
            models = [e.call for e in watcher.recorder.tape.entries if isinstance(e.call, nn.Module)]
            now.notable.update(facts_of(optimizer, models))
        bad = watcher.bad_state() if watcher.bad_state is not None else []
        if bad:
            self._went_bad(optimizer, bad)
        if clock >= watcher.fingerprints.rest_until:
            watcher.fingerprints.updated(optimizer, now.number)
        if watcher.backwards.under_way is not None:
            now.updated_inside = optimizer
            return
        watcher.finish_step(verdict, optimizer)
        watcher.listen()

    def _note_update(self, optimizer: Optimizer, grad_norm: float | None) -> None:
        now = self._watcher.now
        self.last = self.last_of_each.note(
            optimizer, now.number, now.gradients, self.stack, grad_norm, self._rates
        )

    def _went_bad(self, optimizer: Optimizer, sinks: list[tuple[str, torch.Tensor]], note: str = "") -> None:
        """An update has made bad weights: the only way on is back."""
        if self._watcher.trouble("weights", sinks, optimizer, prevented=False, note=note) == "rollback":
            self._watcher.roll_back()

    def _judge_hyperparameters(self, optimizer: Optimizer) -> None:
        """A rate that a schedule made NaN or Inf spoils every weight: stop before it is used. (With a live
        trace running, the op that it spoils is seen and named.)"""
        watcher = self._watcher
        if watcher.live is None or not watcher.live.active:
            self._note_update(optimizer, None)
            watcher.trouble("hyperparameter", [], optimizer)

    def _judge(self, optimizer: Optimizer, on_device: bool) -> None:
        watcher = self._watcher
        live = watcher.live
        if live is not None and live.on:
            live.pause()
        if on_device:
            self.late.judge(optimizer, self.clips.norm_for(optimizer))
            return
        may_be_damaged = watcher.fingerprints.due or watcher.recorder.tape.changes_buffers
        damage = self.lasting.damage(watcher.now.number) if may_be_damaged else None
        verdict = self._verdict(optimizer, damage)
        if verdict.bad == "overflow":
            watcher.scaling.overflowed(optimizer)
        elif verdict.bad == "left out":
            self.do_without("skip", optimizer, None)
        elif verdict.bad == "state" and damage is not None:
            self._act_on_damage(damage, optimizer)
        elif verdict.bad is not None:
            self._act_on(verdict, optimizer, damage)
        elif live is not None and live.active:
            watcher.judge_silent_damage(optimizer)

    def _verdict(self, optimizer: Optimizer, damage: Damage | None = None) -> Verdict:
        """Of all ranks: "rank" when another one's is worse."""
        step, lockstep = self._watcher.now, self._watcher.lockstep
        checked = step.scaler_checked and self._watcher.scaling.stepping
        gradients = [] if checked else gradients_of(optimizer)
        step.gradients = len(gradients)
        confirm = checked or not step.clipped_by_value
        norm = None if step.clip is None else self.clips.norm_for(optimizer)
        verdict = self._watcher.host.judge(step.losses, gradients, norm, confirm)
        if verdict.bad == "loss" and step.given:
            verdict = self._watcher.backwards.judge(gradients, norm, confirm)
        if checked and verdict.bad is None and not step.closure and found_inf(optimizer):
            verdict = verdict._replace(bad="overflow", grad_norm=None)
        if damage is not None and verdict.bad is None:
            verdict = verdict._replace(bad="state")
        left_out = self._left_out is not None and not step.closure
        if left_out and verdict.bad is None and self._has_gradients_of_one_left_out():
            verdict = verdict._replace(bad="left out")
        if lockstep.together and lockstep.groups:
            bad = lockstep.agreed(verdict.bad)
            verdict = verdict if bad == verdict.bad else verdict._replace(bad=bad)
        step.verdict = verdict
        return verdict

    def judge_evaluation(self, optimizer: Optimizer) -> bool:
        """One of several in a step, by a closure: whether it is bad."""
        verdict = self._verdict(optimizer)
        if verdict.bad is not None:
            self._act_on(verdict, optimizer)
        return verdict.bad is not None

    def _act_on_damage(self, damage: Damage, optimizer: Optimizer) -> None:
        """Loss and gradients are finite, and what they were made with is not what it should be."""
        if self._watcher.lockstep.groups:
            damage.by_this_step = False  # what one rank could mend by skipping, others cannot
        action = self.told_of(damage, optimizer)
        if action in ("skip", "rollback"):
            self.do_without(action, optimizer, damage)

    def told_of(self, damage: Damage, optimizer: Optimizer) -> str:
        where, mends = damage.seen_in, damage.by_this_step
        action = self._watcher.trouble(where, damage.sinks, optimizer, prevented=mends, damage=damage)
        if action not in ("skip", "rollback"):
            self.lasting.tell(damage)
        return action or ""

    def do_without(self, action: str, optimizer: Optimizer, damage: Damage | None) -> None:
        """The update is not made, and where the state itself is bad, it goes back to a good one."""
        weights = [p for p in weights_of(optimizer) if p.requires_grad]
        if action == "rollback":
            self.leave_out(optimizer, weights)
            self._watcher.roll_back(None if damage is None else damage.good_until)
            self.aftermath.went_back(optimizer)
            self._hold_back(optimizer)
        else:
            self._hold_back(optimizer)
            self.leave_out(optimizer, weights)
            if damage is not None:
                self.lasting.mend(damage)
        held = self._held or self._closures.copies
        if held is not None:
            held.draws_from_here()

    def _act_on(self, verdict: Verdict, optimizer: Optimizer, damage: Damage | None = None) -> None:
        watcher = self._watcher
        sinks = watcher.bad_losses() + [("gradient", g) for g in gradients_of(optimizer) if not is_finite(g)]
        parts = self.may_have_parts(optimizer)
        action = watcher.trouble(verdict.bad or "", sinks, optimizer, parts=parts, damage=damage)
        if action == "zero":
            replace_by_zero(gradients_of(optimizer))
        if action not in ("skip", "rollback"):
            if damage is not None:
                self.lasting.tell(damage)
            return
        if watcher.good_parts is not None:
            self.go_on_without_the_bad_parts(optimizer)
            return
        self.do_without(action, optimizer, damage)

    def may_have_parts(self, optimizer: Optimizer) -> bool:
        """Whether there are several micro-batches, of which good ones may be kept; where ranks train
        together, they ask each other."""
        if self._watcher.lockstep.groups:
            return not self._step.closure
        several = self._watcher.recorder.tape.backwards > 1 and self._closures.copies is None
        if not several or self._step.closure or not self._watcher.scaling.lets_parts_in(optimizer):
            return False
        return not self._watcher.recorder.has_changed(gradients_of(optimizer))

    def go_on_without_the_bad_parts(self, optimizer: Optimizer) -> None:
        """The update is made with the gradients of the good micro-batches, clipped as the program did."""
        watcher = self._watcher
        if "scale" in self._step.events:
            watcher.scaling.take_good_parts(optimizer)
        else:
            watcher.event("skip-part")
            good, watcher.good_parts = watcher.good_parts, None
            good.put_in(optimizer)
            for clip in self._step.clipping:
                clip()
        self._step.verdict = self._step.verdict._replace(bad=None)

    def _has_gradients_of_one_left_out(self) -> bool:
        """Whether this update follows another optimizer's at once, and that was left out: finite or not,
        these gradients are of the same batch."""
        return self._watcher.recorder.step_of_gradients() == self._left_out

    def leave_out(self, optimizer: Optimizer, weights: list[torch.Tensor]) -> None:
        """All but the update itself as if the batch of this step had never come."""
        watcher = self._watcher
        watcher.event("skip")
        self._left_out = watcher.recorder.step_of_gradients()
        anew = self._may_be_given_anew()
        calls = of_the_batch(watcher.recorder.tape, watcher.recorder.finished)
        put_state_back([*reversed(calls), *watcher.recorder.bounds.before_parts.values()], anew)
        watcher.scaling.stand_still()
        made = self._made.get(id(optimizer), 0)
        self.aftermath.begins(optimizer, weights, made, anew)

    def _may_be_given_anew(self) -> bool:
        """Not after several bad steps in a row: a model that draws its own data, or counts through it, must
        get on."""
        number = self._step.number
        self._skipped_in_a_row = self._skipped_in_a_row + 1 if number == self._skipped_last + 1 else 1
        self._skipped_last = number
        return self._skipped_in_a_row % IN_A_ROW != 0

    def _hold_back(self, optimizer: Optimizer) -> None:
        if self._closures.copies is None:
            self._held = held_back(optimizer)

    def give_back(self) -> None:
        """What was held back is over."""
        self.late.step_is_over()
        held, self._held = self._held, None
        if held is not None:
            held.give_back()

    def judge_last(self) -> None:
        """At the end of the program: have the updates since the last backward left bad weights, which no step
        will show?"""
        since = self._watcher.recorder.step_of_gradients()
        for update in self.last_of_each.latest_first:
            optimizer = update.optimizer()
            if optimizer is None or not (update is self.last or (since is not None and update.step >= since)):
                continue
            bad = [p for p in weights_of(optimizer) if not is_finite(p)]
            bad = [p for p in bad if not was_infinite_before(p) and not was_so_before(p)]
            if bad:
                sinks = [("parameter", p.detach()) for p in bad]
                self._went_bad(optimizer, sinks, say("watch.seen_at_the_end"))
                return


def _has_a_gradient(tensor: torch.Tensor) -> bool:
    try:
        return tensor.requires_grad and tensor.is_leaf and tensor.grad is not None
    except RuntimeError:  # a view whose base was changed in place without autograd
        return False


def _is_inside_the_step_of(optimizer: Optimizer, frame: Any) -> bool:
    """Its own: a class that is built on another one calls the step of that, and torch tells of both."""
    outer = frame.f_back
    while outer is not None:
        if outer.f_code is frame.f_code and outer.f_locals.get("self") is optimizer:
            return True
        outer = outer.f_back
    return False


def _small_parts_of_all_modules() -> list[torch.Tensor]:
    """Also of those that are never called: what an observer has collected before it sees anything may be
    saved as it is. (To read all that is large would take longer than it is worth.)"""
    kept = [vars(module).get(name) for module in living(nn.Module) for name in ("_parameters", "_buffers")]
    held = {id(t): t for tensors in kept if tensors for t in list(tensors.values()) if type(t) in PLAIN_TYPES}
    return [t for t in held.values() if t.is_cpu and t.numel() <= SMALL]
