"""Snapshots on disk, as often as a small share of the time allows, and in memory in between."""

from __future__ import annotations

import math
import os
from time import monotonic, thread_time

from torch import Tensor

from nanwatch.act.snapshot_files import OnDisk
from nanwatch.act.snapshot_shelf import InMemory, Shelf
from nanwatch.act.training_state import State
from nanwatch.messages import say
from nanwatch.watching.shield import describe, warn

SHARE = 0.001
"""Of the time of all CPUs, for writing: a training does not notice that much."""
LONGEST = 300.0
"""Seconds that the disk rests at most: so much of a training is lost with a process that is killed."""
LARGEST = 2**29
"""Bytes of a snapshot that may lie in memory: several copies of a larger one might not fit there."""


class RestingDisk:
    """A folder with snapshots, and those that came while the disk rested. The first is written at once, and
    one of other objects than those on disk; one that cannot be written lies in memory too."""

    def __init__(self, disk: OnDisk) -> None:
        self._disk, self._memory = disk, InMemory()
        self._rest_until = -math.inf
        self._failing = False

    def ids(self) -> list[str]:
        return sorted({*self._memory.ids(), *self._disk.ids()}, reverse=True)

    def put(self, id: str, state: State) -> dict[str, Tensor]:
        large = _bytes(state) > LARGEST
        if large or self._is_due(state):
            try:
                return self._write(id, state)
            except Exception as error:
                if large:
                    raise
                self._say_once(state, error)
        return self._memory.put(id, state)

    def get(self, id: str) -> State:
        return self._place_of(id).get(id)

    def drop(self, id: str) -> dict[str, Tensor]:
        return self._place_of(id).drop(id)

    def is_of(self, id: str, signature: str) -> bool:
        return self._place_of(id).is_of(id, signature)

    def describe(self, id: str) -> str:
        return self._place_of(id).describe(id)

    def close(self) -> None:
        self._memory.close()
        self._disk.close()

    def _place_of(self, id: str) -> Shelf:
        return self._memory if id in self._memory.ids() else self._disk

    def _is_due(self, state: State) -> bool:
        """When the disk has rested, or a new process could not go on from what is there."""
        if monotonic() >= self._rest_until:
            return True
        newest = self._disk.ids()[:1]
        return not newest or not self._disk.is_of(newest[0], state.signature())

    def _write(self, id: str, state: State) -> dict[str, Tensor]:
        began = thread_time()
        free = self._disk.put(id, state)
        rest = (thread_time() - began) / _cpus() / SHARE
        self._rest_until = monotonic() + min(rest, LONGEST)
        self._failing = False
        return free

    def _say_once(self, state: State, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            warn(say("snapshot.not_written", step=state.step, error=describe(error)))


def _bytes(state: State) -> int:
    return sum(t.numel() * t.element_size() for t in state.tensors.values())


def _cpus() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
