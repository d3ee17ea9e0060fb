"""The audit: the op tracer on the running program itself, the first seconds in full, then now and then.

Forward, loss, data and optimizer ops are traced as they happen; backward is not. Nothing of the program is
run twice, and nothing is computed otherwise than without us: it hears the ops through `op_tap`, and is no
mode of torch's. The share of the run's time it may take is bounded.

To look at a value on a GPU is to wait for it, and a wait could hide that the program forgot one of its own.
Where it works on several streams, or has values sent to the host behind its back, the audit stands aside;
where it has values sent to the GPU so, most steps are left alone.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.optim import Optimizer

from nanwatch.replay.blame import first_harmful, hidden_births, is_written_down, silent_damage, way
from nanwatch.replay.op_call import OpCall
from nanwatch.replay.put_into_weights import is_exact, is_put_there
from nanwatch.replay.trace import Op, written_by
from nanwatch.replay.tracer import OpTracer
from nanwatch.signals import let_through
from nanwatch.watching import op_tap
from nanwatch.watching.forbidden import note_left_on_purpose
from nanwatch.watching.module_calls import Scope, path_of
from nanwatch.watching.pretending import pretending
from nanwatch.watching.stack import take_stack, user_frame
from nanwatch.watching.storages import key_of
from nanwatch.watching.streams import on_side_stream
from nanwatch.watching.tape import tensors_in

MOST_OVERDRAWN = 1.5
MOST_HIDDEN = 5
MOST_PEAKS = 3
FIRST_SECONDS = 5.0
SHARE = 0.01
STEPS_BETWEEN_SWEEPS = 64
AMONG_RACES = 4
"""One step in so many is looked at where to look might hide a race. What comes before a call of the model is
still the step before: two in a row must be left alone."""


class _TimedTracer(OpTracer):
    """An op tracer that knows what it has cost, and can be told to look away."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.give_up: Callable[[BaseException], None] | None = None
        self.spent = 0.0
        self.budget = math.inf
        """Where `spent` must stop."""
        self.looking = False
        self.unseen = False
        """A derivative was taken inside a model in this step."""
        self.complete = True
        """Nothing of this step was left out."""
        self.would_hide = False
        """The program does things at the same time: to look could hide a race."""
        self.sends_ahead = False
        """It has values sent to the GPU without waiting for them."""

    def op_begins(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> OpCall | None:
        derivative = torch._C._current_autograd_node() is not None
        if not self.looking or derivative or _capturing() or _jit_tracing() or pretending():
            self.unseen = self.unseen or (derivative and self.looking)
            return None
        if self.spent > self.budget:
            self.looking = self.complete = False  # one long "step" must not eat the run
            return None
        if torch.cuda.is_initialized() and self._would_wait(function, args, kwargs, frame):
            return None
        began = time.perf_counter()
        call = super().op_begins(function, args, kwargs, frame)
        if call is not None:
            call.began = began
        return call

    def op_raised(self, call: OpCall | None, error: Exception) -> None:
        super().op_raised(call, error)
        self._count(call)

    def op_ended(self, call: OpCall | None, outputs: Any) -> None:
        super().op_ended(call, outputs)
        self._count(call)

    def _count(self, call: OpCall | None) -> None:
        if call is not None:
            self.spent += time.perf_counter() - call.began

    def _would_wait(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> bool:
        """Whether to look would make the program wait for a copy that it does not wait for itself. What it
        copies to the GPU came in there, as far as we know."""
        by_place = function is torch.ops.aten.copy_.default and len(args) > 2 and args[2] is True
        asked = by_place or bool(kwargs.get("non_blocking"))
        if on_side_stream() or (asked and _sends_to_host(args, kwargs)):
            self.would_hide = True
            self.looking = self.complete = False
        self.sends_ahead = self.sends_ahead or asked
        if by_place and not self.would_hide:
            self._note_arrival([args[0]], take_stack(frame))
        return asked or self.would_hide

    def failed(self, error: Exception) -> None:
        """The program's own op has run: only the audit ends here."""
        self.looking = self.complete = False
        if isinstance(error, RecursionError):
            return  # the program is about as deep as it may go: no room for us
        let_through(error)
        if self.give_up is not None:
            self.give_up(error)


_jit_tracing = torch._C._get_tracing_state


def _capturing() -> bool:
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _sends_to_host(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    target = torch.device(kwargs["device"]) if "device" in kwargs else args[0].device
    return bool(target.type == "cpu") and any(isinstance(a, torch.Tensor) and a.is_cuda for a in args[:2])


def _place(op: Op) -> str:
    frame = user_frame(op.stack)
    return "?" if frame is None else f"{os.path.basename(frame.file)}:{frame.line}"


class LiveTracer:
    """`watch.LiveTrace`: decides at each step whether to trace it, within its budget of time."""

    def __init__(self, first_seconds: float = FIRST_SECONDS, share: float = SHARE) -> None:
        self.scope = Scope()
        self.tracer = _TimedTracer(self.scope)
        self.active = False
        self.on = False
        """It hears the ops of its thread."""
        self._thread = 0
        self._traced = False
        """The step that is under way, or the last one, was active when it began."""
        self._first_seconds = first_seconds
        self._share = share
        self._began = time.perf_counter()
        self._step_cost = 0.0
        self._state: set[int] = set()
        """The memory of what the optimizer keeps that has made the last update."""
        self._updated: set[int] = set()
        """That of its weights."""
        self._spent_before = 0.0

    def tell_errors_to(self, give_up: Callable[[BaseException], None]) -> None:
        self.tracer.give_up = give_up

    @property
    def phase(self) -> str:
        return self.tracer.phase

    @phase.setter
    def phase(self, value: str) -> None:
        self.tracer.phase = value

    def root_returned(self) -> None:
        self.tracer.roots += 1

    def begin_step(self, step: int) -> bool:
        tracer, allowed = self.tracer, self._share * (time.perf_counter() - self._began)
        tracer.step, tracer.complete, tracer.unseen = step, True, False
        before, self.active = self._traced, self._affordable(allowed)
        self._traced = self.active
        if before or self.active or step % STEPS_BETWEEN_SWEEPS == 0:
            tracer.new_step(step)  # forgets what nobody can ask for any more
        if self.active:
            self._spent_before = tracer.spent
            most = max(self._first_seconds + allowed, tracer.spent + self._step_cost)
            tracer.budget = MOST_OVERDRAWN * most
        return self.active

    def count_back(self, steps: int) -> None:
        """The numbers of steps were too high by this."""
        self.tracer.step -= steps
        for op in self.tracer.trace.ops.values():
            op.step -= steps

    def _affordable(self, allowed: float) -> bool:
        if self.tracer.would_hide or (self.tracer.sends_ahead and self.tracer.step % AMONG_RACES):
            return False
        if self.tracer.spent < self._first_seconds:
            return True
        return self.tracer.spent + self._step_cost - self._first_seconds <= allowed

    def end_step(self, good: bool) -> None:
        """Of one that was traced."""
        if good:
            made = [op for op in self.tracer.trace.ops.values() if op.step == self.tracer.step]
            infinite = [op for op in made if op.makes_inf and not op.makes_nan]
            harmless = [op for op in infinite if not op.range_only]  # nobody counts on an overflow
            self.tracer.usual.update(site for op in harmless for site in op.sites_alike)
            self._note_what_was_lived_with()
        self._step_cost = max(self.tracer.spent - self._spent_before, 1e-3)

    def _note_what_was_lived_with(self) -> None:
        """The batch of this step may have been made before it began."""
        ops = [op for op in self.tracer.trace.ops.values() if op.step >= self.tracer.step - 1]
        self.tracer.lived_with.update(op.place for op in ops if op.is_given_nan)

    def resume(self) -> None:
        if not self.tracer.complete:
            self.active = False
        if not self.active:
            self.pause()
            return
        self.tracer.looking = True
        if not self.on:
            op_tap.tell(self.tracer)
            self.on, self._thread = True, threading.get_ident()

    def looks_away(self) -> bool:
        """Pause for something that this step computes and this trace must not see. Whether it was looking."""
        if not self.on or not self.tracer.looking:
            return False
        self.pause()
        self.tracer.unseen = True
        return True

    def pause(self) -> None:
        self._hear_nothing()

    def _hear_nothing(self) -> None:
        """In another thread than its own it is only blind from then on."""
        self.tracer.looking = False
        if self.on and self._thread == threading.get_ident():
            op_tap.tell_nobody()
            self.on = False

    def look_again(self) -> None:
        """Whether it hears the ops, after an interruption at any place."""
        self.on = op_tap.is_on() and op_tap.listener() is self.tracer

    def leave_for_good(self) -> bool:
        """False in another thread than its own."""
        self.active = False
        self._hear_nothing()
        return not self.on

    @property
    def small_budget(self) -> tuple[float, float]:
        """Seconds at first, and the share of the time afterwards, for what is looked at beside the trace."""
        return self._first_seconds / 10, self._share / 10

    @property
    def ops_seen(self) -> int:
        return self.tracer.next_index

    def was_loss_since(self, seen: int) -> None:
        """The module that was called then has turned out to be a loss."""
        for index, op in self.tracer.trace.ops.items():
            if index >= seen and op.phase == "forward":
                op.phase = "loss"

    def was_a_layer(self, root: Any) -> None:
        """A module that looked like a loss in this step."""
        for op in self.tracer.trace.ops.values():
            if op.step == self.tracer.step and op.phase == "loss" and op.modules and op.modules[0] is root:
                op.phase = "forward"

    def writer_of(self, tensor: torch.Tensor) -> int | None:
        """The traced op that last wrote something non-finite into this memory."""
        index = self.tracer.writers.get(tensor)
        return index if index in self.tracer.trace.ops else None

    def facts(self) -> dict[str, Any]:
        """For the timeline: what was born and hidden in this step, and how near modules came to the limits
        of their dtype (as a share of it, the nearest first)."""
        if not self.active:
            return {}
        hidden = [
            f"{born.name} at {_place(born)}, hidden by {hider.name} at {_place(hider)}"
            for born, hider in hidden_births(self.tracer.trace, self.tracer.step)[:MOST_HIDDEN]
        ]
        nearest = sorted(self.tracer.peaks.shares.items(), key=lambda item: -item[1])[:MOST_PEAKS]
        found: dict[str, Any] = {"hidden": hidden} if hidden else {}
        peaks = {}
        for place, share in nearest:
            modules = tuple(module for reference in place if (module := reference()) is not None)
            if modules and len(modules) == len(place):
                peaks[path_of(modules) or ""] = float(f"{share:.3g}")
        return {**found, "range_used": peaks} if peaks else found

    def silent_damage(self) -> bool:
        return bool(silent_damage(self.tracer.trace, self.tracer.step))

    def bad_update(self, optimizer: Optimizer, of_a_good_step: bool) -> bool:
        """Where the step itself was bad, and was told of, what the optimizer keeps is bad because of it."""
        kept = [t for state in optimizer.state.values() for t in tensors_in(state)]
        weights = [p for group in optimizer.param_groups for p in group["params"]]
        self._state = set(map(key_of, kept)) if of_a_good_step else set()
        self._updated = set(map(key_of, weights))
        if self.bad_updates():
            return True
        note_left_on_purpose(t for t in (*weights, *kept) if self.writer_of(t) is not None)
        return False

    def held_by_the_optimizer(self, key: int) -> bool:
        return key in self._state

    def bad_updates(self) -> list[int]:
        """Ops of this step's update that left something non-finite behind, born of its own arithmetic or held
        by the optimizer before."""
        return [op.index for op in self.tracer.trace.ops.values() if self._is_bad_update(op)]

    def _is_bad_update(self, op: Op) -> bool:
        """An infinity that the optimizer wrote down itself, or keeps (the smallest value so far, one divided
        by a count of 0), is harmless until it comes to a weight; and there, if it was put there."""
        if op.phase != "optimizer" or op.step != self.tracer.step or not op.bad_outputs:
            return False
        if not self.tracer.writers.holds(op.index):
            return False
        blame = first_harmful(self.tracer.trace, [op.index])
        if blame is None:
            return False
        spoils_a_weight = any(operand.key in self._updated for operand in op.bad_outputs)
        if blame.outside is not None or blame.op.phase != "optimizer":
            passed = way(self.tracer.trace, blame.op.index, [op.index]) if spoils_a_weight else []
            held = [blame.outside] if blame.outside is not None else written_by([blame.op, *passed])
            return spoils_a_weight and any(self.held_by_the_optimizer(operand.key) for operand in held)
        if spoils_a_weight:
            return not is_put_there(self.tracer.trace, op, self._updated, self.held_by_the_optimizer)
        nan = any(operand.numbers.nan for operand in op.bad_outputs)
        return not is_written_down(blame.op) and (nan or not is_exact(blame.op))
