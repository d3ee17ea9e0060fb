"""The backward's part of a step: what is differentiated, and what is judged where no optimizer will."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from nanwatch.tensors import is_finite
from nanwatch.tensors.plain_dispatch import plain_dispatch
from nanwatch.tensors.rows import PLAIN_TYPES
from nanwatch.watching.about_models import leaves_of
from nanwatch.watching.by_hand import derivatives_on, last_derivative, written_by_the_program
from nanwatch.watching.given_gradients import judged, seeds_of
from nanwatch.watching.sentinel import Verdict
from nanwatch.watching.tape import Entry, tensors_in

if TYPE_CHECKING:
    from nanwatch.watching.watcher import Watcher

HALF = (torch.float16, torch.bfloat16)
"""Weights of which an optimizer may have copies in float32."""

BY_HAND = 2
"""Derivatives after which weights were written into, and no optimizer has made a step."""


class Backwards:
    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.under_way: Entry | None = None
        self._written_by_hand = 0
        """After so many derivatives the program has written into weights that an optimizer holds."""
        self._noticed: weakref.ref[Entry] | None = None
        """The last of these."""

    def begins(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: Any) -> Any:
        watcher = self._watcher
        if self.under_way is not None:
            return None  # inside another one, which makes a checkpointed part again: no loss of its own
        if watcher.outputs.pending is not None or watcher.outputs.trial is not None:
            watcher.outputs.backward_begins()
        if not watcher.has_backward:
            watcher.has_backward = True
            if watcher.now.number and watcher.updates.optimizers and watcher.updates.last is None:
                self.count_from_here()
        watcher.now.scaler_checked, watcher.now.clip = False, None  # more gradients are to come
        watcher.stand_aside()
        was, watcher.calls.handler = watcher.calls.handler, None
        watcher.event("backward")
        entry = None
        if not watcher.inside:
            if watcher.now.losses and not watcher.now.updating and watcher.training:
                self._discard_what_was_cleared()
            watcher.now.zeroed.clear()
            watcher.recorder.let_go()
            entry = self.under_way = watcher.recorder.backward_begins(call, args, kwargs, frame)
            losses = tensors_in(args[0] if args else kwargs.get("tensors"))
            if watcher.now.unscaled and losses:
                entry.unscaled = self._unscaled(losses[-1], kwargs)
            unscaled = [entry.unscaled] if entry.unscaled is not None else losses
            entry.judged = [_value_of(loss) for loss in unscaled]
            watcher.now.losses += entry.judged
            given = args[1] if len(args) > 1 else kwargs.get("grad_tensors")
            if given is not None and entry.unscaled is None:
                watcher.now.given += zip(entry.judged, seeds_of(args, kwargs, losses), strict=True)
            if watcher.updates.last is None and not watcher.training:
                watcher.now.leaves = leaves_of(losses)
        return was, entry

    def _discard_what_was_cleared(self) -> None:
        """Where the program has thrown the gradients of the last backwards away, and made no update with
        them, it has looked at them itself: they are nobody's any more."""
        watcher = self._watcher
        if self._was_noticed(last_derivative(watcher.recorder.tape)):
            return  # it has made an update with them, by hand
        if not watcher.updates.gradients_were_cleared():
            return
        watcher.event("discarded")
        now = watcher.now
        now.losses.clear()
        now.given.clear()
        now.clipping.clear()
        now.clipped_by_value = False
        watcher.recorder.forget_what_was_differentiated()

    def _unscaled(self, loss: torch.Tensor, kwargs: dict[str, Any]) -> torch.Tensor | None:
        """The loss before a GradScaler multiplied it. Mostly asked once: its graph must not be held here."""
        watcher = self._watcher
        if kwargs.get("retain_graph"):
            return watcher.now.unscaled.get(id(loss))
        return watcher.now.unscaled.pop(id(loss), None)

    def count_from_here(self) -> None:
        """Training begins: what was called before (a teacher, a look at a shape) was no step of it."""
        self._count_back(self._watcher.now.number)

    def _count_back(self, steps: int) -> None:
        watcher = self._watcher
        watcher.now.number -= steps
        watcher.recorder.count_back(steps)
        if watcher.live is not None:
            watcher.live.count_back(steps)

    def done(self, token: Any, finished: bool = True) -> None:
        watcher = self._watcher
        if token is None:
            return
        watcher.calls.handler, entry = token
        if entry is not None:
            entry.finished = finished
            self.under_way = None
            watcher.recorder.backward_done()
            if watcher.now.updated_inside is not None:
                watcher.finish_step(watcher.now.verdict, watcher.now.updated_inside)
        if not watcher.inside and not watcher.now.updating:
            if watcher.updates.last is None and not watcher.training:
                self._judge_without_optimizer()
            watcher.listen()

    def judge(
        self, gradients: list[torch.Tensor], norm: torch.Tensor | None, confirm: bool = True
    ) -> Verdict:
        """The losses since the last update, and these gradients of theirs, on the host."""
        watcher, now = self._watcher, self._watcher.now
        verdict = watcher.host.judge(now.losses, gradients, norm, confirm)
        if verdict.bad == "loss" and now.given:
            self.leave_masks_out(judged)
            verdict = watcher.host.judge(now.losses, gradients, norm, confirm)
        return verdict

    def leave_masks_out(self, how: Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]) -> None:
        """Of what was differentiated with a given gradient: the infinities that nothing is trained with."""
        now = self._watcher.now
        left = {id(value): how(value, seed) for value, seed in now.given}
        now.given.clear()
        now.losses = [left.get(id(loss), loss) for loss in now.losses]
        for entry in self._watcher.recorder.tape.entries:
            if entry.judged:
                entry.judged = [left.get(id(loss), loss) for loss in entry.judged]

    def _judge_without_optimizer(self) -> None:
        """Nobody has stepped an optimizer yet: the program may update its weights by hand."""
        watcher = self._watcher
        leaves, watcher.now.leaves = watcher.now.leaves, []
        held = [] if watcher.by_hand else watcher.updates.weights_held()
        ids, masters = {id(p) for p in held}, {p.shape for p in held if p.dtype is torch.float32}
        if any(id(p) in ids or (p.dtype in HALF and p.shape in masters) for p in leaves):
            watcher.trained[0, 0] = True  # it only has not stepped yet: judged when it does
            return
        self._judge_of_nobody(leaves)
        if not watcher.now.model_returned:
            watcher.finish_step(watcher.now.verdict)  # no module, no optimizer: a step is a backward

    def _judge_of_nobody(self, leaves: list[torch.Tensor]) -> None:
        """Gradients that no optimizer will use."""
        watcher = self._watcher
        gradients = [p.grad for p in leaves if p.grad is not None]
        watcher.now.verdict = self.judge(gradients, None)
        if watcher.now.verdict.bad is not None:
            bad = [("gradient", g) for g in gradients if not is_finite(g)]
            watcher.trouble(watcher.now.verdict.bad, watcher.bad_losses() + bad, prevented=False)

    def notice_updates_by_hand(self) -> None:
        """Before a model is called: what was differentiated since the first call was not judged, as it seemed
        to wait for an optimizer."""
        watcher, tape = self._watcher, self._watcher.recorder.tape
        since = last_derivative(tape)
        if since is None or self._was_noticed(since):
            return
        weights = written_by_the_program(watcher.updates.weights_held(), tape, since)
        if not weights:
            return
        self._noticed = weakref.ref(tape.entries[since])
        self._written_by_hand += 1
        if self._written_by_hand < BY_HAND:
            return  # for another pass of the same step, perhaps
        watcher.by_hand = True
        self._count_back(1 - self._written_by_hand)
        if watcher.now.losses:
            self._judge_of_nobody(weights)
        for call in derivatives_on(tape):
            self.grad_done([tensor for tensor, _ in call.made], call.args[:1])

    def _was_noticed(self, place: int | None) -> bool:
        if place is None or self._noticed is None:
            return False
        return self._noticed() is self._watcher.recorder.tape.entries[place]

    def grad_begins(self) -> bool:
        """A derivative is not traced while the program runs, no more than a backward. Whether it would be."""
        live = self._watcher.live
        return live is not None and live.looks_away()

    def grad_ends(self, looked: bool | None) -> None:
        if looked and self._watcher.live is not None:
            self._watcher.live.resume()

    def grad_done(self, gradients: Any, losses: Any = ()) -> None:
        """`torch.autograd.grad` of `losses` in a program that updates its weights by hand."""
        watcher = self._watcher
        if watcher.outside.handling:
            return  # the call is being recorded: judged when it is on the tape
        if watcher.inside or watcher.now.updating or watcher.training or not watcher.outside.listening:
            return
        updated = [] if watcher.by_hand else watcher.updates.weights_held()
        if {t.shape for t in tensors_in(gradients)} & {p.shape for p in updated}:
            return  # an optimizer will use them: judged then
        bad = [("gradient", t) for t in tensors_in(gradients) if not is_finite(t)]
        if bad:
            bad_losses = [("loss", t.detach()) for t in tensors_in(losses) if not is_finite(t)]
            watcher.trouble("loss" if bad_losses else "gradients", bad_losses + bad)
            watcher.listen()
        elif (
            not watcher.now.model_returned
            and (watcher.by_hand or not watcher.updates.optimizers)
            and not any(t.requires_grad for t in tensors_in(gradients))
        ):
            watcher.finish_step(watcher.now.verdict)  # no module, no optimizer: a step is a derivative


def _value_of(loss: torch.Tensor) -> torch.Tensor:
    """Without its graph. A mode of the program's that sees every op is not shown this one."""
    if type(loss) not in PLAIN_TYPES or not _modes():
        return loss.detach()
    with plain_dispatch():
        return loss.detach()


_modes = torch._C._len_torch_dispatch_stack
