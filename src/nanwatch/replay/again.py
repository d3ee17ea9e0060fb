"""Run a recorded step again, under a tracer, and leave no trace in the program.

Buffers are swapped, not written. Random state and everything else is put back; what the program's own code
writes into its memory while it runs again, too.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from nanwatch.replay.needed_entries import needed_entries
from nanwatch.replay.player import Player, hooks_on
from nanwatch.replay.put_back import everything_put_back
from nanwatch.replay.trace import Op
from nanwatch.replay.tracer import OpTracer, measurable
from nanwatch.replay.untouched import Untouched
from nanwatch.replay.weights_in_between import WeightsInBetween
from nanwatch.tensors import is_finite
from nanwatch.watching.module_calls import ModuleCalls, Scope
from nanwatch.watching.randomness import drawn_again
from nanwatch.watching.ranks import is_replicated
from nanwatch.watching.tape import Entry, Tape, map_tensors
from nanwatch.watching.torch_functions import written_to


@dataclass(frozen=True)
class Changes:
    """What is to be different when the step is run again; nothing, unless said."""

    tracer: type[OpTracer] = OpTracer
    autocast: bool = True
    """False: off, whatever the program had on."""
    around: Callable[[], contextlib.AbstractContextManager[Any]] | None = None
    """Entered around every call, under the tracer's eyes: a mode that changes what the ops do."""
    call: Callable[[Entry], Callable[..., Any]] | None = None
    """What to call in the place of a recorded call outside modules."""
    repaired: bool = False
    """The program's source was changed: other values than the recorded ones are expected."""
    outside: Callable[[torch.Tensor], torch.Tensor] | None = None
    """What stands in for a tensor that the step was given and did not make: the batch, not a weight."""
    saving: Callable[[Callable[..., Any], Callable[..., Any]], tuple[Any, Any]] | None = None
    """What stands in for the two hooks through which the program saves tensors for the backward."""
    draws_on: bool = False
    """Random numbers are drawn on from call to call; else each call draws what it drew in the program."""
    begins_with: tuple[Entry, ...] = ()
    """Models and random states begin as they were before these; else as before the calls of the tape."""
    at_begin: Callable[[], None] | None = None
    """Called when all is as it was before the step."""
    at_end: Callable[[], None] | None = None
    """Called when all is done and nothing is put back yet."""

    @property
    def any(self) -> bool:
        return self != Changes(tracer=self.tracer)


@dataclass
class Again:
    """What a replay gave."""

    tracer: OpTracer
    losses: list[torch.Tensor] = field(default_factory=list)
    gradients: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """(parameter, its gradient)."""
    outputs: list[torch.Tensor] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: Exception | None = None
    backwards: list[int] = field(default_factory=list)
    """How many of the gradients there were after each backward."""
    counterpart: dict[int, Any] = field(default_factory=dict)
    """id of a tensor of the program, or of a function that a transform gave it -> that of the replay."""
    differs: bool = False
    """A model gave something else than it gave to the program."""
    cut_off: bool = False
    """Something that was differentiated in the program could not be made again: its value was taken."""

    def counterparts(self, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """What the replay made in the place of these, as far as it did."""
        found = (self.counterpart.get(id(tensor)) for tensor in tensors)
        return [tensor for tensor in found if tensor is not None]

    @property
    def unharmed(self) -> bool:
        return self.error is None and self.finite

    @property
    def finite(self) -> bool:
        found = [*self.losses, *self.outputs, *(gradient for _, gradient in self.gradients)]
        return all(is_finite(t) for t in found if measurable(t))


def run_again(
    tape: Tape,
    earlier: tuple[Tape, ...],
    calls: ModuleCalls,
    without_scale: bool = False,
    changes: Changes | None = None,
) -> Again:
    """Forward, loss and backward of `tape`, traced. `without_scale`: as if no GradScaler had been there."""
    changes = changes or Changes()
    entries = needed_entries(tape, earlier)
    again = _run_once(tape, entries, calls, without_scale, changes)
    if again.unharmed and any(e.context.saving is not None for e in entries):
        again = _run_once(tape, entries, calls, without_scale, changes, through_saving=True)
    if again.unharmed and any(hooks_on(tensor) for e in entries for tensor, _ in e.made):
        again = _run_once(tape, entries, calls, without_scale, changes, with_hooks=True)
    return again


def _run_once(
    tape: Tape,
    entries: list[Entry],
    calls: ModuleCalls,
    without_scale: bool,
    changes: Changes,
    through_saving: bool = False,
    with_hooks: bool = False,
) -> Again:
    """`through_saving`: what is saved for the backward goes through the program's own hooks again.
    `with_hooks`: gradients go through those that it has put on what calls returned."""
    scope = Scope()
    tracer = changes.tracer(scope)
    tracer.alone = True
    tracer.step = tape.step
    tracer.untouched = untouched = Untouched()
    again = Again(tracer, notes=list(tape.notes))
    player = Player(tape, tracer, again, untouched, without_scale, through_saving, with_hooks, changes)
    was, calls.handler = calls.handler, _past_replicas(scope)
    try:
        anomaly = torch.autograd.set_detect_anomaly(False)  # the program's own would end the replay early
        with (
            everything_put_back(_changing(entries, tape, changes), untouched),
            _eager(),
            torch.enable_grad(),
            anomaly,
            warnings.catch_warnings(action="ignore"),  # the program has had its warnings
        ):
            if changes.at_begin is not None:
                changes.at_begin()
            with _weights_in_between(tape, player, untouched):
                player.play(entries)
            if changes.at_end is not None:
                changes.at_end()
    finally:
        calls.handler = was
    return again


def _weights_in_between(
    tape: Tape, player: Player, untouched: Untouched
) -> contextlib.AbstractContextManager[None]:
    if not tape.weights_follow:
        return contextlib.nullcontext()
    player.weights = WeightsInBetween(tape)
    return player.weights.followed(untouched)


def follow_the_weights(tape: Tape, earlier: tuple[Tape, ...], calls: ModuleCalls) -> None:
    """Where the program changes weights between the calls of a step, and only with those changes a replay
    gives what the program got: from here on they are made. (Of weights that they have made bad a replay
    would give the same, whatever came before.)"""
    between = WeightsInBetween(tape)
    if not between or not (between.are_bad or run_again(tape, earlier, calls).differs):
        return
    tape.weights_follow = True
    try:
        again = run_again(tape, earlier, calls)
    except RuntimeError:  # no memory for the copies
        tape.weights_follow = False
    else:
        tape.weights_follow = again.error is None and not again.differs


def _changing(entries: list[Entry], tape: Tape, changes: Changes) -> list[Entry]:
    """Those whose state before is the one to begin with, the oldest first."""
    if not changes.begins_with:
        return entries
    of_tape = {id(entry) for entry in tape.entries}
    return [*(entry for entry in entries if id(entry) not in of_tape), *changes.begins_with]


def _past_replicas(scope: Scope) -> Callable[..., Any]:
    """Follows module calls. A data parallel wrapper only hands on: it would wait for its gradients."""

    def inner(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapper.module(*args, **kwargs)

    def follow(original: Any, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return scope.follow(inner if is_replicated(module) else original, module, args, kwargs)

    return follow


def call_again(
    entry: Entry,
    step: int,
    roots: int = 0,
    values: dict[int, torch.Tensor] | None = None,
    of_a_model: bool = False,
) -> Op | None:
    """One call of the tape, traced, on copies of its tensors: the op in it that first made a bad value.
    `values`: what was in some of them, by their id. `of_a_model`: it works on what a model has computed."""
    tracer = OpTracer(Scope())
    tracer.alone = True
    tracer.step = step
    tracer.base = entry.stack
    tracer.roots = roots
    tracer.phase = "functional" if entry.functional else ("loss" if of_a_model else "outside")
    copies = {key: value.clone() for key, value in (values or {}).items()}
    if entry.before is not None:
        copies.setdefault(id(written_to(entry.args, entry.kwargs)), entry.before.clone())

    def copy_of(tensor: torch.Tensor) -> torch.Tensor:
        return copies.setdefault(id(tensor), tensor.detach().clone())

    tracer.boundary = sys._getframe()
    try:
        args, kwargs = map_tensors(entry.args, copy_of), map_tensors(entry.kwargs, copy_of)
        with drawn_again(entry.rng, entry.generators), torch.no_grad(), tracer:
            entry.call(*args, **kwargs)
    except Exception:
        return None
    return next((op for op in tracer.trace.ops.values() if op.makes_nan or op.makes_inf), None)


@contextlib.contextmanager
def _eager() -> Iterator[None]:
    """Compiled models run their eager code, so that every op has its line."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
