"""What comes into the program without any op: from which line, and in which pass over the data."""

from __future__ import annotations

import weakref
from typing import Any

from nanwatch.watching.stack import Stack, take_stack
from nanwatch.watching.storages import Storages
from nanwatch.watching.tape import tensors_in

SWEPT_EVERY = 64
"""Steps after which the places of freed memory are forgotten."""


class Arrivals:
    def __init__(self) -> None:
        self.places: Storages[Stack] = Storages()
        """Memory that was filled elsewhere -> where it came in."""
        self._epochs: dict[int | None, int] = {}
        """id of a data set -> how many passes over it had a step in them."""
        self._passes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """The iterator of a loader -> which pass over its data it makes."""
        self._data: int | None = None
        """id of the data set that the last batch is from."""

    def came(self, value: Any, frame: Any) -> None:
        stack = take_stack(frame)
        for tensor in tensors_in(value):
            self.places.put(tensor, stack)

    def batch_came(self, loader: Any, value: Any, frame: Any) -> int | None:
        """`loader`: the iterator of a DataLoader. Its first batch begins a pass over the data, which counts
        once a step was made in it: a validation on the same data is none. Returns the pass."""
        self._data = id(loader._dataset)
        if loader._num_yielded == 1:
            self._passes[loader] = self._epochs.get(self._data, 0) + 1
        self.came(value, frame)
        return self._passes.get(loader)

    def step_made(self, number: int, epoch: int | None) -> None:
        """`number`: of the step that begins now."""
        if epoch is not None:
            self._epochs[self._data] = max(epoch, self._epochs.get(self._data, 0))
        if number % SWEPT_EVERY == 0:
            self.places.sweep()
