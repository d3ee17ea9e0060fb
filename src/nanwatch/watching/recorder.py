"""Keeps the tape of the current step: who called what with which tensors, outside of modules."""

from __future__ import annotations

import sys
import weakref
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import dropwhile
from types import FrameType
from typing import Any

import torch
from torch import nn

from nanwatch.messages import say
from nanwatch.signals import let_through
from nanwatch.watching.contents import after_the_call, contents_of, free_variables, holds, renewed
from nanwatch.watching.given_to_a_step import given_to_a_step
from nanwatch.watching.let_go import let_go, use_again
from nanwatch.watching.module_state import (
    MOST_LOOKS,
    Changing,
    note_everything,
    note_what_changes,
    what_changed,
)
from nanwatch.watching.own_values import any_weight
from nanwatch.watching.randomness import Rng, states_of
from nanwatch.watching.settings import Settings
from nanwatch.watching.stack import Stack, take_stack
from nanwatch.watching.storages import Storages, key_of
from nanwatch.watching.streams import on_side_stream
from nanwatch.watching.tape import Context, Entry, PlainCalls, Tape, sequence_number, tensors_in
from nanwatch.watching.torch_functions import changes_its_input, facts_of, written_to
from nanwatch.watching.within_bounds import Bounds, look, settle, sweep

PLAIN_CALLS_KEPT = 3
"""Calls of models without gradients that stay on the tape with what led to them: teachers, targets."""

FORGOTTEN_AT_ONCE = 4
"""Fewer entries are not worth a new tape."""

FORGOTTEN_BYTES = 2**26
"""Where they have made as much as this, they are."""

SMALL_BYTES = 2**15
"""What is changed in place outside modules is copied first up to this size."""

GIVEN_BYTES = 2**20
"""What a model that writes into its arguments is given is copied first up to this size."""

RARELY = 16
"""Steps."""

SETS_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]
UNSCALING = torch._amp_foreach_non_finite_check_and_unscale_


@dataclass(slots=True)
class Known:
    """What was learned of a module from its calls."""

    module: weakref.ref[nn.Module]
    looked_at: bool = False
    """What it held at its first call is on record."""
    changing: dict[bool, Changing] = field(default_factory=dict)
    """training mode -> what a call changes."""
    unchanging: set[bool] = field(default_factory=set)
    """The training modes in which a call changes nothing."""
    has_weights: bool = True
    is_learned_from: bool = False
    """What it returned could be differentiated, once at least."""
    tries_weights: bool = False
    """The program has set others after it saw what came of some, and differentiates nothing."""
    draws_from_numpy: bool = False
    overwrites: bool = False
    """It has changed what it was given."""
    shown: dict[bool, Changing] = field(default_factory=dict)
    """training mode -> what the first calls have shown so far."""
    looks: Counter[bool] = field(default_factory=Counter)
    """training mode -> how often all that it may change was noted."""
    settings: Settings | None = None
    """What its code reads beside what it is given, if anything."""


class Recorder:
    """Holds the tape being written and the finished ones that may still be asked for."""

    def __init__(self) -> None:
        self.tape = Tape(0)
        self.bounds = Bounds()
        """Of that tape."""
        self._usual_calls = 1
        """Calls of models that lead to one backward."""
        self._asked_again_in = 0
        """The step from which on it is tried again to let go of what a step has made before its backward."""
        self.finished: deque[Tape] = deque(maxlen=1)
        self._kept = 1
        """Of those, as many are kept though all is known of their steps."""
        self.failing: tuple[Entry, BaseException] | None = None
        self._known: weakref.WeakKeyDictionary[nn.Module, Known] = weakref.WeakKeyDictionary()
        self._last_known: Known | None = None
        self.on_write: Callable[..., None] | None = None
        """Told of every tensor of the program that is about to be changed in place, where, and of what its
        `.data` is set to."""
        self._backwards = 0
        """How many are under way: one may be inside another."""
        self._left_alone: list[tuple[Entry, list[bool]]] = []
        """While a backward is under way: of each container that a call has changed, whether nobody else had
        until then."""
        self.handed_out: Storages[Stack] = Storages()
        """Memory that something else than torch was given (a NumPy array), and where."""
        self.swaps: list[tuple[nn.Module, dict[str, Any]]] = []
        """The `functional_call`s under way: a module, and the weights it gets for this call."""

    def next_step(self, step: int) -> None:
        finished, tape = self.finished, self.tape
        leaves = finished[0].stand_ins if len(finished) == finished.maxlen else []
        for entry in tape.entries:
            if entry.kind == "module":
                entry.let_model_go()
        tape.slim = not tape.large and tape.looked_at == len(tape.made)
        finished.append(tape)
        parts = self.bounds.parts and tape.backwards > 1
        self.tape, self.bounds = Tape(step), Bounds(sweep_at=self._usual_calls + 1, parts=parts)
        if leaves:
            use_again(leaves)

    def forget(self) -> None:
        """At the end: nobody will ask, and what the program has let go of goes."""
        self.tape, self.bounds = Tape(self.tape.step), Bounds()
        self.finished.clear()
        self.failing = None

    def count_back(self, steps: int) -> None:
        """The step under way is the first one; what came before it has numbers below zero."""
        for tape in (*self.finished, self.tape):
            tape.step -= steps

    def let_go(self) -> None:
        """Large things that tapes alone hold, before a backward: its peak is that of the program. Where the
        program itself holds through it what its step has made, this is not asked again in every step."""
        try:
            for tape in self.finished:
                if not tape.slim:
                    tape.slim = let_go(tape)
            if self.tape.step >= self._asked_again_in and not let_go(self.tape):
                self._asked_again_in = self.tape.step + RARELY
        except Exception as error:  # then they hold what they hold: nothing else depends on it
            let_through(error)
            for tape in self.finished:
                tape.slim = True

    def of_gradients(self) -> tuple[Tape, tuple[Tape, ...]]:
        """The tape that made the gradients which are there now, and those before it. An update that follows
        another one at once (a second optimizer's, one made past the scaler) has the gradients of that one."""
        tapes = [*self.finished, self.tape]
        while len(tapes) > 1 and not tapes[-1].entries:
            tapes.pop()
        return tapes[-1], tuple(tapes[:-1])

    def step_of_gradients(self) -> int | None:
        """The last step in which something was differentiated, or could have been: it made the gradients."""
        for tape in (self.tape, *reversed(self.finished)):
            if any(e.kind == "backward" or _is_differentiable(e) for e in tape.entries):
                return tape.step
        return None

    def has_changed(self, gradients: list[torch.Tensor]) -> bool:
        """Whether the program itself has written these since its first backward, in a way that only it knows:
        divided them, or clipped them by hand. What a GradScaler does to them is known."""
        keys = {key_of(gradient) for gradient in gradients}
        since = dropwhile(lambda entry: entry.kind != "backward", self.tape.entries)
        for entry in since:
            writes = entry.kind != "backward" and changes_its_input(entry.call, entry.kwargs)
            written = tensors_in(written_to(entry.args, entry.kwargs)) if writes else []
            if entry.call is not UNSCALING and any(key_of(t) in keys for t in written):
                return True
        return any(id(gradient) in self.tape.made for gradient in gradients)

    def given_to(self, step: int) -> dict[Hashable, float]:
        """What the program has given the step that has just been made; nothing is known of others."""
        return given_to_a_step(self.tape) if self.tape.step == step else {}

    def remember(self, tapes: int, late: int) -> None:
        """Keep the last `tapes` finished tapes, and before them those of steps that may be asked about late,
        at most so many."""
        self._kept = tapes
        if self.finished.maxlen != tapes + late:
            self.finished = deque(self.finished, maxlen=tapes + late)

    def was_good(self, step: int) -> None:
        """A verdict that came late: what was kept for it may go, and its graph with it."""
        finished = self.finished
        while len(finished) > self._kept and finished[0].step < step:
            leaves = finished.popleft().stand_ins
            use_again(leaves)

    def called(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> Entry | None:
        facts = facts_of(function)
        if facts.quiet:
            if facts.sets:
                self._sets(take_stack(frame), *args[:2], data=function == SETS_DATA)
            elif facts.hands_out:
                self.handed_out.put(args[0], take_stack(frame))
            return None
        kind = "op"
        if (facts.in_place or "out" in kwargs) and self._writes_from_outside(args, kwargs, frame):
            kind = "write"
        rng = Rng.now() if facts.may_draw else None
        entry = Entry(kind, function, args, kwargs, take_stack(frame), Context.now(), rng=rng)
        if facts.in_place:
            entry.before = _small_copy(written_to(args, kwargs))
        if kwargs.get("non_blocking"):
            entry.on_side_stream = on_side_stream()
        if kwargs.get("generator") is not None:
            entry.generators = states_of(kwargs.values())
        return entry

    def _sets(self, stack: Stack, tensor: Any, value: Any = None, *, data: bool = False) -> None:
        """The `.data` of a tensor anew, or another of its attributes."""
        self.tape.unlisted.add(stack)
        place = self.tape.sets[id(tensor)] = len(self.tape.entries)
        if data and isinstance(tensor, torch.nn.Parameter):
            self.tape.data_set.append((place, tensor, tensor.data, value))
        if self.on_write is not None:
            self.on_write(stack, tensor, value)

    def _writes_from_outside(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> bool:
        """Whether the tensor about to be overwritten was there before the tape; then its value is saved
        if an earlier entry used it."""
        outside = False
        target = written_to(args, kwargs)
        for tensor in tensors_in(target):
            if self.on_write is not None:
                self.on_write(take_stack(frame), tensor)
            base = tensor._base if tensor._base is not None else tensor
            self.tape.save_before_overwrite(base)
            self.tape.save_before_overwrite(tensor)
            if id(tensor) not in self.tape.made or id(base) not in self.tape.made:
                outside = True
        return outside

    def returned(self, entry: Entry, outputs: Any) -> None:
        some = isinstance(outputs, torch.Tensor) or tensors_in(outputs)
        if not some and not changes_its_input(entry.call, entry.kwargs):
            return  # a question, not a computation
        self.tape.add(entry)
        if entry.kind != "write":
            self.tape.returned(entry, outputs)
        if len(self.tape.entries) >= self.bounds.look_at:
            self._keep_bounds(look)

    def _keep_bounds(self, work: Callable[[Tape, Bounds], None]) -> None:
        try:
            work(self.tape, self.bounds)
        except Exception as error:  # then it holds what it holds: nothing else depends on it
            let_through(error)
            self.bounds = Bounds(sweep_at=sys.maxsize, look_at=sys.maxsize)

    def failed(self, entry: Entry | None, error: BaseException) -> None:
        if entry is not None:
            self.tape.add(entry)
            self.failing = (entry, error)

    def module_begins(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> Entry:
        known = self.known_of(module)
        rng = Rng.of_all(known.draws_from_numpy)
        entry = Entry("module", module, args, kwargs, take_stack(frame), Context.now(), rng=rng)
        entry.known, entry.has_weights = known, known.has_weights
        entry.training = getattr(module, "training", False)  # frozen TorchScript has none
        if self.swaps and self.swaps[-1][0] is module:
            entry.swapped = self.swaps[-1][1]
        if known.settings is not None:
            entry.settings = known.settings, known.settings.now()
        plain = not kwargs and len(args) == 1 and isinstance(args[0], torch.Tensor)  # the usual call
        if not plain:
            entry.contents = contents_of(args, kwargs)
            entry.generators = states_of((*args, *kwargs.values()))
        if entry.training not in known.changing:
            note_everything(entry, module)
        elif entry.training not in known.unchanging:
            note_what_changes(entry, known.changing[entry.training])
        if self.bounds.differentiated:
            self._keep_bounds(settle)
        if entry.context.grad:
            if self.bounds.open_calls >= self.bounds.sweep_at:
                self._keep_bounds(sweep)
            self.bounds.open_calls += 1
        self.tape.add(entry)
        if known.overwrites:
            self._keep_what_it_was_given(entry)
        entry.began = sequence_number()
        return entry

    def known_of(self, module: nn.Module) -> Known:
        known = self._last_known  # mostly the same model again
        if known is None or known.module() is not module:
            known = self._known.get(module)
            if known is None:
                weights = any_weight(module) is not None
                known = self._known[module] = Known(weakref.ref(module), has_weights=weights)
                known.settings = _settings_of(module)
            self._last_known = known
        return known

    def _keep_what_it_was_given(self, entry: Entry) -> None:
        """Copies, if they cost next to nothing, for a model that will write into its arguments again."""
        given = [t for t, _ in entry.versions if t.layout is torch.strided]
        if sum(t.numel() * t.element_size() for t in given) <= GIVEN_BYTES:
            for tensor in given:
                self.tape.save_before_overwrite(tensor)

    def forget_plain_calls(self) -> None:
        """A model was called without gradients and judged: what led to earlier such calls and will not be
        differentiated needs no replay any more, so that an evaluation of any length holds a few batches."""
        tape = self.tape
        self._note_plain_calls(tape)
        few = max(FORGOTTEN_AT_ONCE, len(tape.entries) // 8)  # each time, all entries are gone through
        if tape.plain.entries < few and tape.plain.nbytes < FORGOTTEN_BYTES:
            return
        entries = tape.entries
        plain = [_is_plain(e) for e in entries]
        calls = [i for i, e in enumerate(entries) if plain[i] and e.kind == "module"]
        last = calls[-1 - PLAIN_CALLS_KEPT] if len(calls) > PLAIN_CALLS_KEPT else -1
        if sum(plain[: last + 1]) >= FORGOTTEN_AT_ONCE:
            tape.rebuild([e for i, e in enumerate(entries) if i > last or not plain[i]])
            tape.looked_for_plain = len(tape.entries)
        elif len(calls) > PLAIN_CALLS_KEPT:
            tape.plain = PlainCalls()

    def _note_plain_calls(self, tape: Tape) -> None:
        for entry in tape.entries[tape.looked_for_plain :]:
            if _is_plain(entry):
                tape.plain.entries += 1
                tape.plain.nbytes += sum(t.nbytes for t, _ in entry.made if t.layout is torch.strided)
        tape.looked_for_plain = len(tape.entries)

    def forget_what_was_differentiated(self) -> None:
        """The entries up to the last backward."""
        entries = self.tape.entries
        last = max((i for i, e in enumerate(entries) if e.kind == "backward"), default=-1)
        self.tape.rebuild(entries[last + 1 :])
        self.tape.lacks_parts = False
        self.bounds = Bounds(sweep_at=self._usual_calls + 1, parts=self.bounds.parts)

    def module_returned(self, entry: Entry, outputs: Any) -> None:
        entry.ended = sequence_number()
        self.tape.returned(entry, outputs)
        assert isinstance(entry.call, nn.Module)
        known = entry.known
        if not known.is_learned_from:
            known.is_learned_from = _is_differentiable(entry)
        if entry.training not in known.changing:
            changing = what_changed(entry)
            seen = known.shown.get(entry.training)
            known.shown[entry.training] = changing = changing if seen is None else changing.and_also(seen)
            known.looks[entry.training] += 1
            if changing.is_all or known.looks[entry.training] >= MOST_LOOKS:
                known.changing[entry.training] = changing
                if not changing.anything:
                    known.unchanging.add(entry.training)
        if entry.containers:
            entry.containers = after_the_call(entry.containers)
            self.tape.with_containers += [entry] if entry.containers else []
        if entry.attributes:
            entry.left = [
                (owner, name, weakref.ref(value))
                for owner, name, _ in entry.attributes
                if isinstance(value := owner.__dict__.get(name), torch.Tensor)
            ]
        if not known.draws_from_numpy and entry.rng is not None and entry.rng.numpy_drew():
            known.draws_from_numpy = True
        for tensor, version in entry.versions:
            if version != -1 and tensor._version != version and not tensor.requires_grad:
                entry.overwritten = known.overwrites = True
                self._note(say("watch.batch_changed"))

    def _note(self, sentence: str) -> None:
        """For a report, if there is one."""
        if sentence not in self.tape.notes:
            self.tape.notes.append(sentence)

    def applied(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> Entry:
        entry = Entry("apply", function, args, kwargs, take_stack(frame), Context.now(), rng=Rng.now())
        entry.generators = states_of((*args, *kwargs.values()))
        entry.free = free_variables(function, args)
        self.tape.add(entry)
        return entry

    def backward_begins(
        self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> Entry:
        entry = Entry("backward", call, args, kwargs, take_stack(frame), Context.now())
        self._backwards += 1
        if self._backwards == 1:  # else one inside another
            bounds = self.bounds
            self._usual_calls = max(bounds.open_calls, self._usual_calls - 1)
            bounds.open_calls, bounds.sweep_at = 0, self._usual_calls + 1
            if bounds.differentiated:
                self._keep_bounds(settle)
            self.bounds.differentiated = True
            if self.tape.with_containers:
                self._left_alone = [
                    (e, [holds(container, after) for container, _, after in e.containers])
                    for e in self.tape.with_containers
                ]
        self.tape.add(entry)
        return entry

    def backward_done(self) -> None:
        """Activation checkpointing calls parts of a model again: what that adds to a container belongs to the
        call, too."""
        self._backwards -= 1
        if self._backwards:
            return
        for entry, left_alone in self._left_alone:
            entry.containers = [
                renewed(held) if alone else held
                for held, alone in zip(entry.containers, left_alone, strict=True)
            ]
        self._left_alone = []
        if self.bounds.parts:  # the next batch finds the memory of what is let go of before it is made
            self._keep_bounds(settle)


def _settings_of(module: nn.Module) -> Settings | None:
    try:
        return Settings(module) or None
    except Exception as error:  # odd classes: then a replay has what is there now
        let_through(error)
        return None


def _small_copy(target: Any) -> torch.Tensor | None:
    """A copy of what is about to be overwritten, if that costs next to nothing."""
    if not isinstance(target, torch.Tensor) or target.layout is not torch.strided:
        return None
    if target.requires_grad and torch.is_grad_enabled():
        return None  # differentiable: replayed with the rest
    if target.numel() * target.element_size() > SMALL_BYTES or target.device.type == "meta":
        return None
    return target.detach().clone()


def _is_plain(entry: Entry) -> bool:
    return not (entry.kind == "backward" or _is_differentiable(entry))


def _is_differentiable(entry: Entry) -> bool:
    return any(t.requires_grad for t, _ in entry.made)
