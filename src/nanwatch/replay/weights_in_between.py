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
        self._changed: dict[int, torch.Tensor] = {}
        self._first: dict[int, torch.Tensor] = {}
        """What some were until then: those whose `.data` was set, or that the program has copied before it
        wrote into them."""
        self._sets: list[tuple[int, torch.Tensor, torch.Tensor]] = []
        for place, tensor, before, value in tape.data_set:
            if id(tensor) in self._weights and key_of(before) != key_of(value):  # else `p.data += …`
                self._sets.append((place, tensor, value))
                self._memory[key_of(before)] = self._memory[key_of(value)] = tensor
                self._changed[id(tensor)] = tensor
                self._first.setdefault(id(tensor), before)
        self._places = {id(entry): place for place, entry in enumerate(tape.entries)}
        self._writes: set[int] = set()
        for entry in tape.entries:
            if self._writes_into_some(entry):
                self._writes.add(id(entry))
            elif getattr(entry.call, "__name__", "") in COPIES:
                self._note_copy(entry)
        calls = [place for place, entry in enumerate(tape.entries) if entry.kind == "module"]
        self._last_call = max(calls, default=-1)

    def __bool__(self) -> bool:
        """Whether some are changed before a call, or may have been put back after the last one."""
        return bool(self._changed)

    def _note_copy(self, entry: Entry) -> None:
        """Of a weight that nobody has written into yet."""
        weight = (
            self._weight(entry.args[0]) if entry.args and isinstance(entry.args[0], torch.Tensor) else None
        )
        made = entry.outputs
        if weight is None or id(weight) in self._changed or not isinstance(made, torch.Tensor):
            return
        if made.shape == weight.shape and all(version_of(t) == version for t, version in entry.made):
            self._first.setdefault(id(weight), made)

    @property
    def are_bad(self) -> bool:
        """What is there now is what the step has made of them: it began with something else."""
        return not all(map(is_finite, self._changed.values()))

    def _writes_into_some(self, entry: Entry) -> bool:
        if entry.kind != "write" and not changes_its_input(entry.call, entry.kwargs):
            return False
        written = map(self._weight, tensors_in(written_to(entry.args, entry.kwargs)))
        weights = {id(weight): weight for weight in written if weight is not None}
        self._changed.update(weights)
        return bool(weights)

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
                begins = self._first.get(id(weight), data)
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
