"""The judge at the gate: which tensors of what is saved are bad. Its own failure lets everything pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from nanwatch.act.saved_state import bad_tensors
from nanwatch.messages import say
from nanwatch.records import Numbers
from nanwatch.watching.shield import describe, warn

R = TypeVar("R")


class Judge:
    """One for the process; what is already judged is known for each thread."""

    def __init__(self) -> None:
        self._thread = threading.local()
        self._complained = False

    @property
    def resting(self) -> bool:
        return bool(getattr(self._thread, "depth", 0))

    @contextmanager
    def rest(self) -> Iterator[None]:
        """What is saved inside was judged as a whole, or is not to be judged."""
        self._thread.depth = getattr(self._thread, "depth", 0) + 1
        try:
            yield
        finally:
            self._thread.depth -= 1

    def bad_in(self, saved: Any, is_state: bool = False) -> list[Numbers]:
        return [] if self.resting else self.guarded(lambda: bad_tensors(saved, is_state), [])

    def guarded(self, work: Callable[[], R], otherwise: R) -> R:
        """What `work` returns; `otherwise` when it fails, which is said once."""
        try:
            return work()
        except Exception as error:
            self.failed(error)
            return otherwise

    def failed(self, error: BaseException) -> None:
        if not self._complained:
            self._complained = True
            warn(say("gate.failed", error=describe(error)))
