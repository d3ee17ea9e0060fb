"""All that is known about one bad step. Everything is worked out when it is first asked for, once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.lineage import Lineage
from nanwatch.explain.mechanism import UNKNOWN, Mechanism, mechanism_of
from nanwatch.explain.room import room_for_a_step
from nanwatch.explain.step_lineage import lineage_of
from nanwatch.explain.text import Text
from nanwatch.records import Experiment, StepFacts
from nanwatch.replay.again import Again, Changes, run_again
from nanwatch.replay.located import Located
from nanwatch.replay.player import CannotReplayError
from nanwatch.tensors import is_finite
from nanwatch.watching.module_calls import ModuleCalls
from nanwatch.watching.tape import Entry, Tape
from nanwatch.watching.trouble import Trouble

MOST_WAITING = 3
NO_TIME = Text("broken off: out of time", "已中止：时间用完")
NO_MEMORY = Text("broken off: the device has no memory left for it", "已中止：设备内存不足")
NO_ROOM = Text("not done: too little memory is free", "未执行：可用内存太少")


@dataclass(frozen=True)
class Outcome:
    """Of an experiment. `finite`: the step ran to its end with a finite loss and finite gradients; None when
    it could not be done or says nothing."""

    finite: bool | None
    text: str
    value: Any = None
    """More, for the causes that asked for it."""


@dataclass
class Budget:
    """How long the experiments on one step may take in all. On a machine that has other things to do, only
    what this thread works counts, up to a few times as long."""

    seconds: float
    began: float = field(default_factory=time.perf_counter)
    worked_before: float = field(default_factory=time.thread_time)

    @property
    def spent(self) -> bool:
        waited = time.perf_counter() - self.began
        worked = waited if torch.cuda.is_initialized() else time.thread_time() - self.worked_before
        return worked > self.seconds or waited > MOST_WAITING * self.seconds


class OutOfTime(Exception):
    """The budget is spent: no further run of the step."""


class Case:
    def __init__(
        self,
        trouble: Trouble,
        located: Located,
        calls: ModuleCalls,
        history: Sequence[StepFacts] = (),
        budget: Budget | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.trouble = trouble
        self.located = located
        self.calls = calls
        self.history = tuple(history)
        self.budget = budget or Budget(60.0)
        self.experiments: list[Experiment] = []
        """Those that were done, in order."""
        self._progress = progress
        self._outcomes: dict[str, Outcome] = {}

    # What was found out already

    @property
    def phase(self) -> str:
        return self.located.phase

    @property
    def kind(self) -> str:
        return self.located.kind

    @property
    def tape(self) -> Tape:
        return self.trouble.tape

    @property
    def models(self) -> list[torch.nn.Module]:
        """The root modules that were called in this step."""
        found = [e.call for e in self.tape.entries if isinstance(e.call, torch.nn.Module)]
        return list({id(m): m for m in found}.values())

    @property
    def model_calls(self) -> list[Entry]:
        return [e for e in self.tape.entries if e.kind == "module"]

    @cached_property
    def birth(self) -> BirthOp | None:
        """The birth op with its operands; None when no op is known (a bad weight, a bad batch)."""
        return None if self.located.op is None else BirthOp(self.located.op)

    @cached_property
    def mechanism(self) -> Mechanism:
        return Mechanism(UNKNOWN) if self.birth is None else mechanism_of(self.birth)

    @property
    def reproduced(self) -> bool:
        """Whether the birth was seen, live or in a replay, and not only concluded from what was recorded."""
        return self.located.by != "recorded facts"

    @property
    def in_own_code(self) -> bool:
        """Whether the birth is in the program's own arithmetic on gradients, which is no part of what is run
        again: that a repeat is finite says nothing then. (A backward is never located by the live trace.)"""
        return self.phase == "backward" and self.located.by == "live trace"

    @property
    def events(self) -> tuple[str, ...]:
        """The order of calls in this step: forward, scale, backward, unscale, clip, step …"""
        return tuple(self.trouble.events)

    # What more can be found out

    @cached_property
    def lineage(self) -> Lineage:
        """Every op of the step. Costs a replay."""
        return lineage_of(self)

    def rerun(self, changes: Changes | None = None, always: bool = False) -> Again:
        """The step again, with something changed. `always`: also when the budget is spent."""
        if self.budget.spent and not always:
            raise OutOfTime
        again = run_again(
            self.tape, self.trouble.earlier, self.calls, self.trouble.scaler_search, changes or Changes()
        )
        if self.trouble.seen_in == "exception":  # there may be no loss yet: what it died of must be finite
            again.losses += again.counterparts(t for _, t in self.trouble.sinks)
        if again.cut_off and changes is not None and not self._is_cut_off:
            again.error = again.error or CannotReplayError("the change has cut something off")
        return again

    @cached_property
    def _is_cut_off(self) -> bool:
        """Whether the step cannot be made again whole even as it was."""
        return self.rerun(always=True).cut_off

    @cached_property
    def fails_again(self) -> bool:
        """Whether the step fails when it is run again as it is: only then does it say something that it runs
        finite with something changed. What was located by a replay has failed in it."""
        if self.located.by == "replay" or self.phase not in ("forward", "loss"):
            return True
        modes = self.outcome("eager").value  # a replay runs compiled code as eager code
        if modes is not None and modes.compiled_fails:
            return True
        return runs_finite(self.rerun(always=True)) is not True

    @property
    def tried(self) -> frozenset[str]:
        """The experiments that were asked for so far."""
        return frozenset(self._outcomes)

    def outcome(self, name: str) -> Outcome:
        """The outcome of an experiment, by its name; it is done when first asked for, if it applies and there
        is time left."""
        if name not in self._outcomes:
            self._outcomes[name] = self._try(name)
        return self._outcomes[name]

    def _try(self, name: str) -> Outcome:
        from nanwatch.explain.experiments import EXPERIMENTS

        experiment = EXPERIMENTS[name]
        if self.trouble.seen_in == "checkpoint" or self.trouble.device_lost or not experiment.applies(self):
            return Outcome(None, "")  # what was saved is no part of what is run again
        if self.budget.spent:
            return Outcome(None, "")
        if self._progress is not None:
            self._progress(experiment.TITLE.say())
        try:
            found: Outcome = experiment.run(self) if room_for_a_step() else Outcome(None, NO_ROOM.say())
        except OutOfTime:
            found = Outcome(None, NO_TIME.say())
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            found = Outcome(None, NO_MEMORY.say())
        except Exception as error:
            found = Outcome(None, f"{type(error).__name__}: {error}")
        if found.text:
            self.experiments.append(Experiment(name, found.text))
        return found


def runs_finite(again: Again) -> bool | None:
    """Whether a replay came to its end with finite losses, gradients and outputs; None when it broke off."""
    if again.error is not None:
        return None
    gradients = [g for _, g in again.gradients]
    made = [t for t in [*again.losses, *gradients, *([] if again.losses else again.outputs)] if t.numel()]
    return all(is_finite(t) for t in made if t.is_floating_point() or t.is_complex())
