"""What a program does after an update, and must not do after one that was not made: it moves on its learning
rate, its loss scale and its averages. Until its next step these stand still, and random numbers are drawn
again from where the step began: as if the batch had never come."""

from __future__ import annotations

import copyreg
import weakref
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from nanwatch.tensors import is_finite
from nanwatch.watching.about_models import living
from nanwatch.watching.made_anew import carried_on
from nanwatch.watching.module_state import put_state_back
from nanwatch.watching.of_the_batch import of_the_batch
from nanwatch.watching.stack import Stack
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, Tape, given_to, leaves_something, tensors_in, tensors_of_call
from nanwatch.watching.torch_functions import written_to
from nanwatch.watching.values import put_value

if TYPE_CHECKING:
    from nanwatch.watching.watcher import Watcher

NEW_OBJECT = vars(copyreg)["__newobj__"]


class Aftermath:
    """Of one update that was left out."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.still: dict[int, list[tuple[Any, type]]] = {}
        """id of the optimizer -> objects of which a method does nothing when it is called next, and what they
        are else."""
        self._written: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """id -> a tensor that the program has changed since, and what it held."""
        self._set: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Tensors whose `.data` it has set anew since, and to what."""
        self._weights: set[int] = set()
        """The memory of the weights, and of the statistics beside them."""
        self._averaging: list[tuple[torch.Tensor, int, torch.Tensor]] | None = None
        """Of a module that is being called and may average the weights: its own, their version and value."""
        self._usual: set[Stack] | None = None
        """Where the program changed something, or called a module, after the last update; None when there was
        none yet."""
        self._left_out = -1
        """The step."""
        self._averaged: weakref.WeakKeyDictionary[AveragedModel, dict[int, int]] = weakref.WeakKeyDictionary()
        """An average -> how many updates each optimizer had made when it was last brought up to date."""

        self._called: weakref.WeakKeyDictionary[LRScheduler, int] = weakref.WeakKeyDictionary()
        """A schedule -> its calls before the first update that was watched: it may come from a checkpoint."""

    def first_update(self, optimizer: Optimizer) -> None:
        for scheduler in _schedules_of(optimizer):
            self._called.setdefault(scheduler, _calls(scheduler))

    def averaged(self, average: AveragedModel, made: dict[int, int]) -> None:
        self._averaged[average] = dict(made)

    def begins(self, optimizer: Optimizer, weights: list[torch.Tensor], updates: int, anew: bool) -> None:
        """`updates`: how many this optimizer, of these weights, has made while it was watched. `anew`: what
        the step drew may be drawn again. (Not by a model that is given nothing: it draws its own batches.)"""
        tape = self._watcher.recorder.tape
        entries = of_the_batch(tape, self._watcher.recorder.finished)
        first = next((e for e in entries if e.kind == "module" and e.rng is not None), None)
        if anew and first is not None and first.rng is not None and given_to(first):
            first.rng.put_back()
        self._left_out = tape.step
        held = self.still.setdefault(id(optimizer), [])
        for scheduler in _schedules_of(optimizer):
            since = _calls(scheduler) - self._called.get(scheduler, 0)
            if 2 * since >= updates:  # else it goes by epochs, and has nothing to do with this batch
                held += _stand_still(scheduler, "step")
        mine = {id(p) for p in weights}
        shapes = Counter(p.shape for p in weights)
        by_epochs: list[torch.Tensor] = []
        for average in living(AveragedModel):
            seen = self._averaged.get(average)
            if seen is None or seen.get(id(optimizer), 0) == updates:
                held += _stand_still(average, "update_parameters", lambda model: _has(model, mine))
                if Counter(p.shape for p in average.parameters()) == shapes:
                    mine.update(map(id, average.parameters()))  # there may be an average of this one
            else:
                by_epochs += [*average.parameters(), *average.buffers()]
        models = {id(e.call): e.call for e in entries if isinstance(e.call, nn.Module)}
        statistics = [b for model in models.values() for b in model.buffers()]
        self._weights = {key_of(t) for t in (*weights, *statistics)}
        self._usual = _done_after_the_last(tape, entries) if updates else None
        self._watch_averages(weights, statistics, by_epochs)

    def step_begins(self, optimizer: Optimizer) -> None:
        """All is as usual again for this optimizer."""
        for thing, kind in self.still.pop(id(optimizer), ()):
            thing.__class__ = kind

    def went_back(self, optimizer: Optimizer) -> None:
        """To a state that was kept right after an update: what follows one is still to come."""
        self.step_begins(optimizer)
        self._watcher.recorder.on_write = None
        self._written.clear()

    def module_called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A model: the next step begins. One that is given the weights, and nothing else: it averages them,
        and is as it was before when it returns."""
        given = tensors_of_call(args, kwargs)
        models = [v for v in (*args, *kwargs.values()) if isinstance(v, nn.Module)]
        given += [p for model in models for p in model.parameters() if p.requires_grad]
        if not given or any(key_of(t) not in self._weights for t in given):
            self.over_for_averages()
            return
        own = [p for p in module.parameters() if key_of(p) not in self._weights]
        self._averaging = [(p, p._version, p.detach().clone()) for p in own]

    def module_returned(self, entry: Entry) -> None:
        if self._averaging is None:
            return
        own, self._averaging = self._averaging, None
        if entry.made or (self._usual is not None and entry.stack not in self._usual):
            self.over_for_averages()  # a penalty, say, which is of the next step
            return
        put_state_back([entry])
        with torch.no_grad():
            for parameter, version, before in own:
                if parameter._version != version:
                    put_value(parameter, before)

    def over_for_averages(self) -> None:
        """Averages of the weights that the program keeps by hand are as they were before the update."""
        recorder = self._watcher.recorder
        if recorder.on_write is None:
            return
        recorder.on_write = None
        anew = (
            list(carried_on(recorder.tape, recorder.finished[-1], self._weights)) if recorder.finished else []
        )
        written, self._written = self._written, {}
        averages = self._filled_from_weights()
        if averages and any(_is_count(tensor) for tensor, _ in written.values()):
            averages |= _beside(averages, self._weights)
        for tensor, before in (*anew, *(pair for pair in written.values() if key_of(pair[0]) in averages)):
            with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
                tensor.copy_(before)

    def _filled_from_weights(self) -> set[int]:
        """The memory that the program has written since, with something that came of a weight."""
        filled = set(self._weights)
        tapes = (t for t in (*self._watcher.recorder.finished, self._watcher.recorder.tape))
        for entry in (e for tape in tapes if tape.step > self._left_out for e in tape.entries):
            if any(key_of(t) in filled for t in given_to(entry)):
                filled.update(key_of(t) for t, _ in entry.made)
                if entry.kind == "write":
                    filled.update(map(key_of, tensors_in(written_to(entry.args, entry.kwargs))))
        filled.update(key_of(tensor) for tensor, source in self._set if key_of(source) in filled)
        self._set.clear()
        return filled - self._weights

    def over(self) -> None:
        self.over_for_averages()
        for held in self.still.values():
            for thing, kind in held:
                thing.__class__ = kind
        self.still.clear()

    def _watch_averages(
        self, weights: list[torch.Tensor], statistics: list[torch.Tensor], by_epochs: list[torch.Tensor]
    ) -> None:
        """What is changed in place now and is as large as a weight or a statistic, or as all weights, but is
        none and no gradient: perhaps a moving average of them, be it in another precision or shape, unless
        it goes by epochs."""
        sizes = {t.numel() for t in (*weights, *statistics)} | {sum(p.numel() for p in weights)}
        mine = {key_of(p) for p in weights}
        gradients = {key_of(p.grad) for p in weights if p.grad is not None}
        others = gradients | self._weights | {key_of(t) for t in by_epochs}

        def on_write(stack: Stack, tensor: torch.Tensor, source: Any = None) -> None:
            if key_of(tensor) in mine:
                self.over_for_averages()  # what is put into a weight is what the average was
            if self._watcher.recorder.on_write is None or (
                self._usual is not None and stack not in self._usual
            ):
                return
            if isinstance(source, torch.Tensor):
                self._set.append((tensor, source))
            known = id(tensor) in self._written or tensor.is_inference() or key_of(tensor) in others
            average = not known and tensor.numel() in sizes and tensor.is_floating_point()
            if (average and is_finite(tensor)) or (not known and _is_count(tensor)):
                self._written[id(tensor)] = (tensor, tensor.detach().clone())

        self._watcher.recorder.on_write = on_write


def _is_count(tensor: torch.Tensor) -> bool:
    """Of updates, perhaps, by which an average warms up."""
    return tensor.numel() == 1 and not tensor.requires_grad


def _beside(averages: set[int], weights: set[int]) -> set[int]:
    """The memory of the buffers of modules that keep such averages, and nothing that learns."""
    found: set[int] = set()
    for module in living(nn.Module):
        held = {key_of(t) for t in (*module.parameters(), *module.buffers())}
        if held & averages and not held & weights:
            found.update(map(key_of, module.buffers()))
    return found


def _done_after_the_last(tape: Tape, batch: list[Entry]) -> set[Stack]:
    """What the program did between its last update and this batch: as after each, and not by epochs."""
    of_batch = set(map(id, batch))
    return {e.stack for e in tape.entries if id(e) not in of_batch and leaves_something(e)} | tape.unlisted


def _innermost(optimizer: Any) -> Any:
    """The optimizer itself, where a framework has put another object around it."""
    for _ in range(3):
        inner = getattr(optimizer, "optimizer", None)
        if not isinstance(inner, Optimizer):
            break
        optimizer = inner
    return optimizer


def _schedules_of(optimizer: Optimizer) -> list[LRScheduler]:
    every = living(LRScheduler)
    return [s for s in every if _innermost(getattr(s, "optimizer", None)) is optimizer and _calls(s) >= 0]


def _calls(scheduler: Any) -> int:
    """How often it was called. (Some schedules of torch count in `last_epoch` alone.)"""
    return int(max(getattr(scheduler, "_step_count", 0) - 1, getattr(scheduler, "last_epoch", -1)))


def _has(model: Any, weights: set[int]) -> bool:
    return not isinstance(model, nn.Module) or any(id(p) in weights for p in model.parameters())


def _stand_still(
    thing: Any, method: str, concerned: Callable[[Any], bool] = lambda given: True
) -> list[tuple[Any, type]]:
    """The next call of this method does nothing. A class of its own for that time: what is put on the object
    itself would be in its state_dict. `concerned`: whether it is about this update, by what it is given."""
    kind = type(thing)
    if "_stands_still" in vars(kind):
        return []

    def nothing(thing: Any, *args: Any, **kwargs: Any) -> Any:
        thing.__class__ = kind
        if concerned(args[0] if args else next(iter(kwargs.values()), None)):
            return None
        return getattr(thing, method)(*args, **kwargs)

    def reduced(thing: Any, protocol: Any) -> Any:
        """A copy, or what is in a file, is of its usual class."""
        still = type(thing)
        thing.__class__ = kind
        try:
            made_by, given, *more = thing.__reduce_ex__(protocol)
        finally:
            thing.__class__ = still
        if made_by is NEW_OBJECT and given == (kind,):  # only for what is of that class now
            made_by, given = copyreg._reconstructor, (kind, object, None)  # type: ignore[attr-defined]
        return made_by, given, *more

    own = {method: nothing, "__reduce_ex__": reduced, "__module__": kind.__module__, "_stands_still": True}
    thing.__class__ = type(kind.__name__, (kind,), own)
    return [(thing, kind)]
