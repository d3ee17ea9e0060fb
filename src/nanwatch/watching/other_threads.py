"""Models that other threads call: the workers of a server, a pool of requests.

Each call is judged by what it returns, as in a program that trains nothing; where that is bad the call is run
again, and the error raised in the thread that made it. What such a thread does beside its models is not
followed, and a training there is not watched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from nanwatch.tensors import is_finite
from nanwatch.watching.beside_modes import beside_modes
from nanwatch.watching.recorder import Recorder
from nanwatch.watching.tape import Entry, Tape, tensors_in
from nanwatch.watching.trouble import Trouble

if TYPE_CHECKING:
    from nanwatch.watching.watcher import Watcher


class OtherThreads:
    """Follows the outermost module calls of every thread but the watched one."""

    def __init__(self, program: Watcher) -> None:
        self._program = program
        self._of_thread = threading.local()
        self._one_report = threading.Lock()
        self._calls = 0

    def call(
        self,
        original: Callable[..., Any],
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType,
    ) -> Any:
        mine = self._of_thread
        if getattr(mine, "inside", False):
            return original(module, *args, **kwargs)
        recorder = mine.__dict__.setdefault("recorder", Recorder())
        entry = self._shielded(self._begins, recorder, module, args, kwargs, frame)
        mine.inside = True
        try:
            outputs = original(module, *args, **kwargs)
        finally:
            mine.inside = False
        if entry is not None:
            trouble = self._shielded(self._judged, recorder, entry, outputs)
            if trouble is not None:
                with self._one_report:
                    self._program.tell_from_elsewhere(trouble)
        return outputs

    def _begins(
        self,
        recorder: Recorder,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType,
    ) -> Entry:
        recorder.tape = Tape(self._program.step + self._calls)
        self._calls += 1
        return recorder.module_begins(module, args, kwargs, frame)

    def _judged(self, recorder: Recorder, entry: Entry, outputs: Any) -> Trouble | None:
        recorder.module_returned(entry, outputs)
        tape, recorder.tape = recorder.tape, Tape(0)
        bad = [("output", t) for t in tensors_in(outputs) if not is_finite(t)]
        return Trouble(tape.step, "output", tape, (), bad) if bad else None

    def _shielded(self, work: Callable[..., Any], *args: Any) -> Any:
        """Not by `Shield.run`, which is for one thread."""
        shield = self._program.shield
        if shield.broken:
            return None
        try:
            with torch._C.DisableTorchFunction():
                return beside_modes(work, *args)
        except Exception as error:
            shield.give_up(error)
            return None
