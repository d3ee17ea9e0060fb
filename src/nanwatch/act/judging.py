"""The judge at the gate: which tensors of what is saved are bad. Its own failure lets everything pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from nanwatch.act.saved_state import BadTensor, bad_tensors
from nanwatch.messages import say
from nanwatch.signals import let_through
from nanwatch.watching.shield import describe, warn

R = TypeVar("R")
Told = Callable[[list[BadTensor]], None]
"""Somebody who is to know of a bad checkpoint, once it is out of harm's way; may end the program."""


class Judge:
    """One for the process; what is already judged is known for each thread."""

    def __init__(self) -> None:
        self._thread = threading.local()
        self._complained = False
        self.holds_back = True
        """Else bad checkpoints are only told of, and written as if the gate were not there."""
        self.told: list[Told] = []

    @property
    def resting(self) -> bool:
        return bool(getattr(self._thread, "depth", 0))

    @contextmanager
    def rest(self) -> Iterator[None]:
        """What is saved inside was judged as a whole, or is not to be judged."""
        with self.telling():
            self._thread.depth = getattr(self._thread, "depth", 0) + 1
            try:
                yield
            finally:
                self._thread.depth -= 1

    def bad_in(self, saved: Any, is_state: bool = False) -> list[BadTensor]:
        """What keeps `saved` from having its name; nothing when that cannot be found out."""
        return [] if self.resting else self.look(saved, is_state) or []

    def look(self, saved: Any, is_state: bool = False) -> list[BadTensor] | None:
        """The same; None when it cannot be found out."""
        bad = self.guarded(lambda: bad_tensors(saved, is_state), None)
        self._thread.found = bad
        return bad if bad is None or self.holds_back else []

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Once the checkpoint that was judged last is written, inside, whoever wants to know is told what was
        bad in it."""
        try:
            yield
        except BaseException:
            self._thread.found = None
            raise
        if not self.resting:
            found, self._thread.found = getattr(self._thread, "found", None), None
            for told in list(self.told):
                if found:
                    told(found)

    def guarded(self, work: Callable[[], R], otherwise: R) -> R:
        """What `work` returns; `otherwise` when it fails, which is said once."""
        try:
            return work()
        except Exception as error:
            let_through(error)
            self.failed(error)
            return otherwise

    def failed(self, error: BaseException) -> None:
        if not self._complained:
            self._complained = True
            warn(say("gate.failed", error=describe(error)))
