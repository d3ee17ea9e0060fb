"""A place where snapshots are kept, and the simplest one: host memory."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from nanwatch.act.training_state import State
from nanwatch.messages import say


class Shelf(Protocol):
    """Where snapshots are kept: each whole, or not there. `put` and `drop` return host memory now free."""

    def ids(self) -> list[str]: ...
    def put(self, id: str, state: State) -> dict[str, Tensor]: ...
    def get(self, id: str) -> State: ...
    def drop(self, id: str) -> dict[str, Tensor]: ...
    def is_of(self, id: str, signature: str) -> bool: ...
    def describe(self, id: str) -> str: ...
    def close(self) -> None: ...


class InMemory:
    """Snapshots in host memory, gone with the process."""

    def __init__(self) -> None:
        self._states: dict[str, State] = {}

    def ids(self) -> list[str]:
        return sorted(self._states, reverse=True)

    def put(self, id: str, state: State) -> dict[str, Tensor]:
        self._states[id] = state
        return {}

    def get(self, id: str) -> State:
        return self._states[id]

    def drop(self, id: str) -> dict[str, Tensor]:
        return self._states.pop(id).tensors

    def is_of(self, id: str, signature: str) -> bool:
        return True

    def describe(self, id: str) -> str:
        return say("screen.step", step=self._states[id].step)

    def close(self) -> None:
        self._states.clear()
