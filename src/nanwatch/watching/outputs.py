"""Judging what models return where no update will: programs that train nothing, calls without gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from nanwatch.messages import say
from nanwatch.tensors import is_finite
from nanwatch.watching.about_models import is_metric
from nanwatch.watching.asked_about import is_asked_about
from nanwatch.watching.candidates import gets_other_weights, has_a_score
from nanwatch.watching.held_back import replace_by_zero
from nanwatch.watching.left_unread import (
    is_asked_for_its_shape,
    is_left_unread,
    is_made_finite,
    since,
)
from nanwatch.watching.module_state import put_state_back
from nanwatch.watching.recorder import Known
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, Tape, given_to, tensors_in

if TYPE_CHECKING:
    from nanwatch.watching.watcher import Watcher


@dataclass
class Trial:
    """A call that gave something bad, to be judged by what the program does about it."""

    entry: Entry
    bad: list[torch.Tensor]
    called: set[int] = field(default_factory=set)
    """ids of the modules that were called since with what came of it."""


class Outputs:
    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.at_once = False
        """What is bad is not left to the program, but replaced before it gets it."""
        self.patient = False
        """A program that only infers may deal with what its model returns, until its next call. Else a bad
        call does not return: all is there still that it was made of."""
        self.pending: tuple[Entry, Any] | None = None
        """What a model returned with gradients on, in a program that has not differentiated anything yet."""
        self.trial: Trial | None = None

    def forget(self) -> None:
        self.pending = self.trial = None

    def module_called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """The next one: what the last one returned is judged, unless it goes on with that."""
        if self.pending is not None:
            self.judge_pending()
        if self.trial is not None and not self._goes_on(self.trial, module, args, kwargs):
            self.judge_trial()

    def _goes_on(self, trial: Trial, module: nn.Module, args: Any, kwargs: Any) -> bool:
        """A loss, a decoder: the program may look at what comes of it there. Not a loop over one model."""
        if module is trial.entry.call or id(module) in trial.called:
            return False
        entries = (trial.entry, *since(trial.entry, self._watcher.recorder.tape))
        made = {id(tensor) for entry in entries for tensor, _ in entry.made}
        if not any(id(t) in made and not is_finite(t) for t in tensors_in((args, kwargs))):
            return False
        trial.called.add(id(module))
        return True

    def backward_begins(self) -> None:
        """What can be differentiated is judged by what comes of that."""
        self.pending = None
        if self.trial is not None and any(t.requires_grad for t in self.trial.bad):
            self.trial = None
        self.judge_trial()

    def judge_pending(self) -> None:
        """A model called with gradients on and no backward after it: inference without no_grad."""
        pending, self.pending = self.pending, None
        if pending is not None and not self._watcher.has_backward:
            self.judge(*pending)

    def judge_trial(self) -> None:
        """The program may have tried something out, and looks itself whether it is finite; or it may know
        that what is bad there is nothing to it."""
        trial, self.trial = self.trial, None
        if trial is not None and not self._is_dealt_with(trial):
            self._is_bad(trial.bad)

    def _is_dealt_with(self, trial: Trial) -> bool:
        call, tape = trial.entry, self._watcher.recorder.tape
        return (
            all(map(is_finite, trial.bad))
            or is_asked_about(call, tape)
            or is_left_unread(call, trial.bad, tape)
            or (self._is_of_a_training() and is_made_finite(trial.bad, since(call, tape)))
            or is_asked_for_its_shape(call, tape, self._watcher.recorder.finished)
            or self._is_a_candidate(call, tape)
        )

    def _is_a_candidate(self, call: Entry, tape: Tape) -> bool:
        """In a program that has differentiated nothing."""
        if self._watcher.has_backward or not isinstance(call.call, nn.Module) or not has_a_score(call, tape):
            return False
        recorder = self._watcher.recorder
        known, swaps = recorder.known_of(call.call), recorder.swaps
        given = swaps[-1][1] if swaps and swaps[-1][0] is call.call else None
        known.tries_weights |= gets_other_weights(call, tape, given)
        return known.tries_weights

    def judge(self, entry: Entry, outputs: Any, in_training: bool = False) -> None:
        watcher = self._watcher
        if in_training and _is_a_measure(entry, watcher.recorder.known_of(cast(nn.Module, entry.call))):
            return
        bad = [t for t in tensors_in(outputs) if not is_finite(t)]
        if bad:
            given = set(map(key_of, given_to(entry)))
            bad = [t for t in bad if key_of(t) not in given]  # handed back: it is none of the model's
        collected = bool(bad) and watcher.updates.holds_back and entry.training and bool(entry.buffers)
        if bad and (collected or self.at_once or not self._may_be_left(entry)):
            self._is_bad(bad, say("watch.not_collected") if collected else "")
            if collected:
                put_state_back([entry])
        elif bad:
            self.leave_to_the_program(entry, bad)
        else:
            watcher.judge_silent_damage(None)

    def _may_be_left(self, entry: Entry) -> bool:
        if self.patient or self._is_of_a_training():
            return True
        if not _fills_fresh_memory():
            return False  # what was in it by chance is no answer
        recorder = self._watcher.recorder
        return is_asked_for_its_shape(entry, recorder.tape, recorder.finished)

    def _is_of_a_training(self) -> bool:
        return self._watcher.has_backward or bool(self._watcher.updates.optimizers)

    def leave_to_the_program(self, entry: Entry, bad: list[torch.Tensor]) -> None:
        """For now. Where another call has led to this one, that is the one to be judged."""
        if self.trial is None:
            self.trial = Trial(entry, bad)

    def _is_bad(self, bad: list[torch.Tensor], note: str = "") -> None:
        action = self._watcher.trouble("output", [("output", t) for t in bad], note=note)
        if action == "zero":
            replace_by_zero(t.detach() for t in bad)
        elif action == "rollback":
            self._watcher.roll_back()


def _fills_fresh_memory() -> bool:
    """With NaN: memory that nobody has written is bad for sure, whether anybody reads it or not."""
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    return bool(torch.are_deterministic_algorithms_enabled() and filled)


def _is_a_measure(entry: Entry, known: Known) -> bool:
    """A module without weights from which nothing is ever learned, and that is given what a model made, or
    adds up as metrics do: it has no value for some batches."""
    if entry.has_weights or known.is_learned_from or isinstance(entry.call, nn.modules.loss._Loss):
        return False
    return entry.fed or is_metric(entry.call)
