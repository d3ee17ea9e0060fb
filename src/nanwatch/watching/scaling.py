"""What a GradScaler does between the loss and the update."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from nanwatch.tensors import is_finite
from nanwatch.watching.sentinel import weights_of
from nanwatch.watching.stack import take_stack

if TYPE_CHECKING:
    from nanwatch.watching.watcher import Watcher

FREE_SKIP_SECONDS = 5.0
SKIP_SHARE = 0.02
"""A step that a GradScaler skips is replayed without its scale, within this much time in all."""


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
        self._stepped = False
        """The optimizer has made the update that the scaler was asked for."""
        self._in_a_row = 0
        """Steps that were skipped, one after the other."""
        self._still = False
        """The next update of the scale is not to be made."""
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
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
        self._scaler = scaler
        self.stepping = True
        self._stepped = False
        self._watcher.event("scaler-step")
        if "unscale" not in self._watcher.now.events:  # else it has looked already, and does not look again
            self._watcher.now.scaler_checked = True
        self._watcher.updates.stack = take_stack(frame)
        self._watcher.stand_aside()

    def step_finished(self) -> None:
        """Some update was made, within the scaler's step or not."""
        self._stepped = True

    def step_done(self, optimizer: Optimizer) -> bool:
        """Whether the scaler is to be asked for this step once more, with other gradients."""
        self.stepping = False
        self._in_a_row = 0 if self._stepped else self._in_a_row + 1
        again = False
        if not self._stepped:
            self._watcher.updates.made(optimizer)
            again = self._skipped(optimizer)
        self._watcher.listen()
        return again

    def _skipped(self, optimizer: Optimizer) -> bool:
        """An incident only if something is bad without the scale too. True: its good micro-batches are left,
        and the step can be made with them."""
        watcher = self._watcher
        watcher.event("scaler-skip")
        if self._in_a_row >= FALLING:
            watcher.now.notable["scale_fell"] = self._in_a_row
        verdict = watcher.host.judge(watcher.now.losses, [], None)
        action = None
        if verdict.bad is not None:
            action = watcher.trouble("loss", watcher.bad_losses(), optimizer, parts=self.has_parts(optimizer))
        elif self._seconds < FREE_SKIP_SECONDS + SKIP_SHARE * (time.perf_counter() - self._started):
            began = time.perf_counter()
            parts = self.has_parts(optimizer)
            action = watcher.trouble("gradients", [], optimizer, scaler_search=True, parts=parts)
            self._seconds += time.perf_counter() - began
        if action is None:
            watcher.judge_silent_damage(optimizer)
        if action == "skip" and watcher.good_parts is not None:
            self._take_good_parts(optimizer)
            return True
        if action in ("skip", "rollback"):
            watcher.updates.leave_out(optimizer, weights_of(optimizer))
        if action == "rollback":
            watcher.roll_back()
        watcher.finish_step(verdict, optimizer)
        return False

    def has_parts(self, optimizer: Optimizer) -> bool:
        """Whether the gradients of some micro-batches can take the place of all: not where the scaler has
        several optimizers, which share its verdict, or leaves the unscaling to the optimizer."""
        asked = self._scaler is not None and "scaler-step" in self._watcher.now.events
        states = self._scaler._per_optimizer_states if asked else {}
        fused = getattr(optimizer, "_step_supports_amp_scaling", False)
        return self._watcher.updates.has_parts() and len(states) == 1 and not fused

    def take_good_parts(self, optimizer: Optimizer) -> None:
        """In the middle of the scaler's step, which has let the gradients pass: those of the good
        micro-batches, unscaled and clipped as the others were."""
        scaler = self._scaler
        found_inf = torch.zeros((), dtype=torch.float32, device=scaler._scale.device)
        inverse = scaler._scale.double().reciprocal().float()

        def unscale() -> None:
            scaler._unscale_grads_(optimizer, inverse, found_inf, False)

        self._put_in(optimizer, unscale)
        if "unscale" not in self._watcher.now.events:
            unscale()

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
        self._still = "scale" in self._watcher.now.events

    def update_begins(self, scaler: Any) -> None:
        still, self._still = self._still, False
        if still and scaler._scale is not None:
            self._before = [(t, t.clone()) for t in (scaler._scale, scaler._growth_tracker)]

    def updated(self, scaler: Any) -> None:
        before, self._before = self._before, []
        for tensor, value in before:
            tensor.copy_(value)
        self._watcher.event("update")
        self._watcher.now.scaler = scaler
