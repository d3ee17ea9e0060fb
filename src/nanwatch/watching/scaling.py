"""What a GradScaler does between the loss and the update."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from nanwatch.tensors import is_finite
from nanwatch.watching.sentinel import found_inf, weights_of
from nanwatch.watching.stack import take_stack

if TYPE_CHECKING:
    from nanwatch.watching.watcher import Watcher

FREE_SKIP_SECONDS = 5.0
SKIP_SHARE = 0.02
"""A step that a GradScaler skips is replayed without its scale, within this much time in all for those where
nothing else is wrong."""


FALLING = 3
"""Steps skipped in a row from which on the loss scale is said to keep falling."""


class Scaling:
    """Follows every GradScaler of the program."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._scaler: Any = None
        """The one that was asked for a step last."""
        self.stepping = False
        """A scaler's `step` is under way."""
        self.stepped = False
        """Some update was made since then, within that step or not."""
        self._overflows = False
        """Gradients of this step are not finite with the scale."""
        self._in_a_row = 0
        """Steps that were skipped, one after the other."""
        self._still = False
        """The next update of the scale is not to be made."""
        self._before: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        """Attributes of the scaler that its update is not to change, and what they hold."""
        self._seconds = 0.0
        self._started = time.perf_counter()

    def scaled(self, outputs: Any, scaled: Any) -> None:
        self._watcher.event("scale")
        if isinstance(outputs, torch.Tensor) and isinstance(scaled, torch.Tensor):
            self._watcher.now.unscaled[id(scaled)] = outputs

    def unscaled(self) -> None:
        self._watcher.event("unscale")
        self._watcher.now.scaler_checked = True

    def step_begins(self, scaler: Any, frame: Any) -> None:
        self._watcher.lockstep.step_begins(on_device=False)
        self._scaler = scaler
        self.stepping = True
        self.stepped = self._overflows = False
        self._watcher.event("scaler-step")
        if "unscale" not in self._watcher.now.events:  # else it has looked already, and does not look again
            self._watcher.now.scaler_checked = True
        self._watcher.updates.stack = take_stack(frame)
        self._watcher.stand_aside()

    def step_done(self, optimizer: Optimizer) -> bool:
        """Whether the scaler is to be asked for this step once more, with other gradients."""
        self.stepping = False
        again = False
        if not self.stepped:
            self._watcher.updates.made(optimizer)
            again = self._skipped(optimizer)
        elif not self._overflows:
            self._in_a_row = 0
        self._watcher.listen()
        return again

    def step_failed(self, optimizer: Optimizer) -> None:
        """A program may go on after the error that stopped its step: the scale that the optimizer was given
        for this one would be multiplied into the next."""
        self.stepping = False
        if _unscales(optimizer):
            optimizer.__dict__.pop("grad_scale", None)
            optimizer.__dict__.pop("found_inf", None)

    def _skipped(self, optimizer: Optimizer) -> bool:
        """An incident only if something is bad without the scale too. True: its good micro-batches are left,
        and the step can be made with them."""
        watcher = self._watcher
        self._count_overflow()
        verdict = watcher.host.judge(watcher.now.losses, [], None)
        bad = watcher.lockstep.agreed(verdict.bad or "overflow")
        action = None
        if bad == "overflow":
            action = self._bad_without_scale(optimizer)
        elif bad is not None:
            parts = watcher.updates.may_have_parts(optimizer)
            action = watcher.trouble(bad, watcher.bad_losses(), optimizer, parts=parts)
        if action == "skip" and watcher.good_parts is not None:
            self._take_good_parts(optimizer)
            return True
        watcher.event("scaler-skip")
        if action in ("skip", "rollback"):
            watcher.updates.leave_out(optimizer, weights_of(optimizer))
        if action == "rollback":
            watcher.roll_back()
        watcher.finish_step(verdict, optimizer)
        return False

    def overflowed(self, optimizer: Optimizer) -> None:
        """The same in the middle of the scaler's step, for an optimizer that unscales by itself: it has been
        told to leave everything alone, unless it is only another rank's."""
        watcher = self._watcher
        here = found_inf(optimizer)
        if here:
            self._count_overflow()
        action = self._bad_without_scale(optimizer)
        if action == "skip" and watcher.good_parts is not None:
            self._overflows = False
            watcher.updates.go_on_without_the_bad_parts(optimizer)
            return
        if here:
            watcher.event("scaler-skip")
        if action in ("skip", "rollback"):
            watcher.updates.do_without(action, optimizer, None)

    def _count_overflow(self) -> None:
        self._overflows = True
        self._in_a_row += 1
        if self._in_a_row >= FALLING:
            self._watcher.now.notable["scale_fell"] = self._in_a_row

    def _bad_without_scale(self, optimizer: Optimizer) -> str | None:
        """What to do about gradients that are not finite: nothing if they are without the scale, or if there
        is no time to find out. Ranks that train together all have the time, or none."""
        watcher, began = self._watcher, time.perf_counter()
        action = None
        in_time = self._seconds < FREE_SKIP_SECONDS + SKIP_SHARE * (began - self._started)
        if watcher.lockstep.groups:
            in_time = watcher.lockstep.all_can(in_time)
        if in_time:
            watcher.lockstep.step_begins(on_device=False)  # they will tell each other what they have found
            parts = watcher.updates.may_have_parts(optimizer)
            action = watcher.trouble("gradients", [], optimizer, scaler_search=True, parts=parts)
        if action is None:
            self._seconds += time.perf_counter() - began
            watcher.judge_silent_damage(optimizer)
        return action

    def lets_parts_in(self, optimizer: Optimizer) -> bool:
        """Whether the gradients of some micro-batches can take the place of all: not where the scaler has
        several optimizers, which share its verdict."""
        if "scale" not in self._watcher.now.events:
            return True
        asked = self._scaler is not None and "scaler-step" in self._watcher.now.events
        alone = asked and len(self._scaler._per_optimizer_states) == 1
        return alone and (not _unscales(optimizer) or hasattr(optimizer, "found_inf"))

    def take_good_parts(self, optimizer: Optimizer) -> None:
        """In the middle of the scaler's step: the gradients of the good micro-batches, unscaled and clipped
        as the others were, and what the scaler would have found in them."""
        scaler = self._scaler
        (state,) = scaler._per_optimizer_states.values()
        inverse = scaler._scale.double().reciprocal().float()

        def look(factor: torch.Tensor, half_too: bool = False) -> None:
            nothing = torch.zeros_like(scaler._scale)
            state["found_inf_per_device"] = scaler._unscale_grads_(optimizer, factor, nothing, half_too)

        self._put_in(optimizer, lambda: look(inverse))
        if "unscale" not in self._watcher.now.events:
            look(torch.ones_like(inverse), half_too=True) if _unscales(optimizer) else look(inverse)
        if _unscales(optimizer):
            found = [each.to(scaler._scale.device) for each in state["found_inf_per_device"].values()]
            optimizer.found_inf = sum(found, torch.zeros_like(scaler._scale))  # type: ignore[attr-defined]

    def _take_good_parts(self, optimizer: Optimizer) -> None:
        """After the scaler has left the step out: the gradients of the good micro-batches, at the scale they
        were made with, for a scaler that has not looked at any others."""
        scaler, step = self._scaler, self._watcher.now
        scaler._per_optimizer_states.clear()
        self._put_in(optimizer, lambda: scaler.unscale_(optimizer))
        step.losses = [loss for loss in step.losses if is_finite(loss)]
        step.clip, step.clipped_by_value = None, False

    def _put_in(self, optimizer: Optimizer, unscale: Callable[[], None]) -> None:
        self._watcher.event("skip-part")
        good, self._watcher.good_parts = self._watcher.good_parts, None
        good.put_in(optimizer)
        clipping = iter(self._watcher.now.clipping)
        for event in self._watcher.now.events:
            if event == "unscale":
                unscale()
            elif event == "clip" and (clip := next(clipping, None)) is not None:
                clip()

    def stand_still(self) -> None:
        """The scale is not to learn from this step."""
        self._still = self._still or "scale" in self._watcher.now.events

    def update_begins(self, scaler: Any) -> None:
        still, self._still = self._still, False
        if still and scaler._scale is not None:
            held = {name: getattr(scaler, name) for name in ("_scale", "_growth_tracker")}
            self._before = [(name, tensor, tensor.clone()) for name, tensor in held.items()]

    def updated(self, scaler: Any) -> None:
        before, self._before = self._before, []
        for name, tensor, value in before:
            tensor.copy_(value)
            setattr(scaler, name, tensor)
        self._watcher.event("update")
        self._watcher.now.scaler = scaler


def _unscales(optimizer: Optimizer) -> bool:
    """Whether the scaler leaves the unscaling to this optimizer, and the decision to make the update."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))
