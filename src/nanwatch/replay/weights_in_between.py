"""Weights that a program changes between the calls of one step, and has put back when the step is judged:
sharpness-aware minimisation, noise on the weights, an average in their place for one call. A replay begins
with what is there now, and makes those changes again, on copies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from nanwatch.replay.untouched import Untouched
from nanwatch.watching.randomness import drawn_again
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, Tape, map_tensors, tensors_in
from nanwatch.watching.torch_functions import changes_its_input, written_to


class WeightsInBetween:
    """Of one tape."""

    def __init__(self, tape: Tape) -> None:
        models = [entry.call for entry in tape.entries if isinstance(entry.call, nn.Module)]
        self._weights: dict[int, torch.Tensor] = {id(p): p for model in models for p in model.parameters()}
        self._memory = {key_of(weight): weight for weight in self._weights.values()}
        """All that they have had in this step."""
        self._changed: dict[int, torch.Tensor] = {}
        self._sets: list[tuple[int, torch.Tensor, torch.Tensor]] = []
        for place, tensor, before, value in tape.data_set:
            if id(tensor) in self._weights:
                self._sets.append((place, tensor, value))
                self._memory[before] = self._memory[key_of(value)] = tensor
                self._changed[id(tensor)] = tensor
        self._places = {id(entry): place for place, entry in enumerate(tape.entries)}
        self._writes = {id(entry) for entry in tape.entries if self._writes_into_some(entry)}
        calls = [place for place, entry in enumerate(tape.entries) if entry.kind == "module"]
        self._last_call = max(calls, default=-1)

    def __bool__(self) -> bool:
        """Whether some are changed before a call, or may have been put back after the last one."""
        return bool(self._changed)

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
                weight.data = untouched.own(data.clone(), of=data)
            yield
        finally:
            for weight, data in theirs:
                weight.data = data

    def take(self, entry: Entry) -> bool:
        """What was changed up to this call; whether the call itself was such a change, and is made."""
        place = self._places.get(id(entry), -1)
        while self._waiting and self._waiting[0][0] <= place:
            _, weight, value = self._waiting.pop(0)
            weight.data = value.clone()
        if id(entry) not in self._writes:
            return False
        if place < self._last_call:
            args, kwargs = map_tensors(entry.args, self._of_now), map_tensors(entry.kwargs, self._of_now)
            with torch.no_grad(), drawn_again(entry.rng, entry.generators):
                entry.call(*args, **kwargs)
        return True

    def _of_now(self, tensor: torch.Tensor) -> Any:
        """The same part of the weight, in the memory that it has now."""
        weight = self._weight(tensor)
        if weight is None:
            return tensor
        return weight.data.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
