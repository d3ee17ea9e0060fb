"""Weights that a program changes between the calls of one step, and has put back when the step is judged:
sharpness-aware minimisation, noise on the weights, an average in their place for one call. A replay begins
with what is there now, and makes those changes again, on copies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from nanwatch.replay.untouched import Untouched
from nanwatch.tensors import is_finite
from nanwatch.watching.randomness import drawn_again
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, Tape, given_to, map_tensors, tensors_in, version_of
from nanwatch.watching.torch_functions import changes_its_input, written_to

COPIES = ("clone", "__deepcopy__")


class WeightsInBetween:
    """Of one tape."""

    def __init__(self, tape: Tape) -> None:
        models = [entry.call for entry in tape.entries if isinstance(entry.call, nn.Module)]
        self._weights: dict[int, torch.Tensor] = {id(p): p for model in models for p in model.parameters()}
        self._memory = {key_of(weight): weight for weight in self._weights.values()}
        """All that they have had in this step."""
        calls = [place for place, entry in enumerate(tape.entries) if entry.kind == "module"]
        self._last_call = max(calls, default=-1)
        self._sets: list[tuple[int, torch.Tensor, torch.Tensor]] = []
        found: list[tuple[int, torch.Tensor, torch.Tensor | None]] = []
        """After how many entries which one is changed, and what it was until then, if that is still there."""
        for place, tensor, before, value in tape.data_set:
            if id(tensor) in self._weights and key_of(before) != key_of(value):  # else `p.data += …`
                self._sets.append((place, tensor, value))
                self._memory[key_of(before)] = self._memory[key_of(value)] = tensor
                found.append((place, tensor, before))
        self._places = {id(entry): place for place, entry in enumerate(tape.entries)}
        self._writes: set[int] = set()
        for place, entry in enumerate(tape.entries):
            if written := self._written_by(entry):
                self._writes.add(id(entry))
                found += [(place, weight, None) for weight in written.values()]
        found.sort(key=lambda change: change[0])
        self._changed = {id(weight): weight for _, weight, _ in found}
        self._made_by_the_step = [w for place, w, _ in found if place > min(calls)]
        """Those that are changed after the first call."""
        first = {id(weight): (place, until_then) for place, weight, until_then in reversed(found)}
        self._began: dict[int, torch.Tensor] = {}
        """What some were until then: those whose `.data` was set, or that the program has copied before it
        wrote into them."""
        for key, (place, until_then) in first.items():
            began = self._copy_of(key, tape.entries[:place]) if until_then is None else until_then
            if began is not None:
                self._began[key] = began

    def __bool__(self) -> bool:
        """Whether some are changed before a call, or may have been put back after the last one."""
        return bool(self._changed)

    def _copy_of(self, weight: int, entries: list[Entry]) -> torch.Tensor | None:
        """That the program has made of it, and not written into since."""
        for entry in entries:
            copied, made = next(iter(entry.args), None), entry.outputs
            if not isinstance(copied, torch.Tensor) or not isinstance(made, torch.Tensor):
                continue
            if getattr(entry.call, "__name__", "") not in COPIES or made.shape != self._weights[weight].shape:
                continue
            if self._weight(copied) is self._weights[weight] and all(
                version_of(t) == v for t, v in entry.made
            ):
                return made
        return None

    @property
    def are_bad(self) -> bool:
        """What is there now is what the step has made of them: it began with something else."""
        return not all(map(is_finite, self._made_by_the_step))

    def _written_by(self, entry: Entry) -> dict[int, torch.Tensor]:
        if entry.kind != "write" and not changes_its_input(entry.call, entry.kwargs):
            return {}
        written = map(self._weight, tensors_in(written_to(entry.args, entry.kwargs)))
        return {id(weight): weight for weight in written if weight is not None}

    def _weight(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """That this is, or a part of which."""
        return self._weights.get(id(tensor), self._memory.get(key_of(tensor)))

    @contextlib.contextmanager
    def followed(self, untouched: Untouched) -> Iterator[None]:
        """They have memory of the replay's own meanwhile."""
        theirs = [(weight, weight.data) for weight in self._changed.values()]
        self._waiting = self._sets[:]
        try:
            for weight, data in theirs:
                begins = self._began.get(id(weight), data)
                weight.data = untouched.own(begins.clone(), of=data)
            yield
        finally:
            for weight, data in theirs:
                weight.data = data

    def take(
        self,
        entry: Entry,
        counterpart: Mapping[int, Any],
        tracing: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> bool:
        """What was changed up to this call; whether the call itself was such a change, and is made.
        `counterpart`: id of a tensor of the program -> that of the replay."""

        def of_now(tensor: torch.Tensor) -> Any:
            """The same part of the weight, in the memory that it has now."""
            weight = self._weight(tensor)
            if weight is None:
                return counterpart.get(id(tensor), tensor)
            return weight.data.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

        place = self._places.get(id(entry), -1)
        while self._waiting and self._waiting[0][0] <= place:
            _, weight, value = self._waiting.pop(0)
            made_again = counterpart.get(id(value))
            weight.data = value.clone() if made_again is None else made_again.detach()
        if id(entry) not in self._writes:
            return False
        if place < self._last_call:
            args, kwargs = map_tensors(entry.args, of_now), map_tensors(entry.kwargs, of_now)
            made_again = any(id(t) in counterpart for t in given_to(entry))
            traced = tracing() if made_again else contextlib.nullcontext()
            with torch.no_grad(), drawn_again(entry.rng, entry.generators), traced:
                entry.call(*args, **kwargs)
        return True
