"""Judging what models return where no update will: programs that train nothing, calls without gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from nanwatch.messages import say
from nanwatch.tensors import is_finite
from nanwatch.watching.about_models import is_metric
from nanwatch.watching.asked_about import is_asked_about
from nanwatch.watching.held_back import replace_by_zero
from nanwatch.watching.module_state import put_state_back
from nanwatch.watching.recorder import Known
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, given_to, tensors_in

if TYPE_CHECKING:
    from nanwatch.watching.watcher import Watcher


class Outputs:
    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.pending: tuple[Entry, Any] | None = None
        """What a model returned with gradients on, in a program that has not differentiated anything yet."""
        self.trial: tuple[Entry, list[torch.Tensor]] | None = None
        """A call without gradients in a training that gave something bad, to be judged by what comes next."""

    def forget(self) -> None:
        self.pending = self.trial = None

    def judge_pending(self) -> None:
        """A model called with gradients on and no backward after it: inference without no_grad."""
        pending, self.pending = self.pending, None
        if pending is not None and not self._watcher.has_backward:
            self.judge(*pending)

    def judge_trial(self) -> None:
        """A model called without gradients in a training, that gave something bad: the program may have tried
        something out, and looks itself whether it is finite."""
        trial, self.trial = self.trial, None
        if trial is not None and not is_asked_about(trial[0], self._watcher.recorder.tape):
            self._is_bad(trial[1])

    def judge(self, entry: Entry, outputs: Any, may_be_a_trial: bool = False) -> None:
        watcher = self._watcher
        if may_be_a_trial and _is_a_measure(entry, watcher.recorder.known_of(cast(nn.Module, entry.call))):
            return
        bad = [t for t in tensors_in(outputs) if not is_finite(t)]
        if bad:
            given = set(map(key_of, given_to(entry)))
            bad = [t for t in bad if key_of(t) not in given]  # handed back: it is none of the model's
        collected = bool(bad) and watcher.updates.holds_back and entry.training and bool(entry.buffers)
        if bad and may_be_a_trial and not collected:
            self.trial = (entry, bad)
        elif bad:
            self._is_bad(bad, say("watch.not_collected") if collected else "")
            if collected:
                put_state_back([entry])
        else:
            watcher.judge_silent_damage(None)

    def _is_bad(self, bad: list[torch.Tensor], note: str = "") -> None:
        action = self._watcher.trouble("output", [("output", t) for t in bad], note=note)
        if action == "zero":
            replace_by_zero(t.detach() for t in bad)
        elif action == "rollback":
            self._watcher.roll_back()


def _is_a_measure(entry: Entry, known: Known) -> bool:
    """A module without weights from which nothing is ever learned, and that is given what a model made, or
    adds up as metrics do: it has no value for some batches."""
    if entry.has_weights or known.is_learned_from or isinstance(entry.call, nn.modules.loss._Loss):
        return False
    return entry.fed or is_metric(entry.call)
