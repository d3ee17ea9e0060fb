"""`LastGood`: a copy of the training every N steps, known to be finite, and the way back to the newest one.

The copy to host memory is made at once and is all that the training waits for. A thread judges it and keeps
it, in memory or on disk.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from nanwatch import arguments
from nanwatch.act.resting_disk import RestingDisk
from nanwatch.act.snapshot_files import OnDisk
from nanwatch.act.snapshot_ranks import Ranks, are_to_come
from nanwatch.act.snapshot_shelf import InMemory, Shelf
from nanwatch.act.training_state import (
    State,
    Unfit,
    can_be_taken,
    check,
    put_back,
    take,
    what_is_not_finite,
)
from nanwatch.errors import NanwatchError
from nanwatch.messages import say
from nanwatch.signals import let_through
from nanwatch.tensors import compiled
from nanwatch.tensors.plain_dispatch import plain_dispatch
from nanwatch.watching.shield import describe, warn

LAG = 3
"""How many snapshots that others have not written yet a rank keeps: they are two behind at most."""

BETWEEN_COLLECTIONS = 20
"""Times as long as a collection of garbage takes is waited before the next."""


class LastGood:
    """Snapshots of models, optimizers, and anything else with a state_dict.

    last_good = nanwatch.LastGood(model, optimizer, scheduler, scaler, every=100, dir="last-good")
    last_good.step(step)        once per optimizer step, after it
    last_good.rollback()        the step it went back to
    """

    def __init__(
        self,
        *objects: Any,
        every: int = 100,
        dir: str | os.PathLike[str] | None = None,
        keep: int = 2,
        disk_rests: bool = False,
    ) -> None:
        """`disk_rests`: not every snapshot is written, if that would take more than a small share of the
        time. Those in between lie in memory."""
        arguments.whole_number("nanwatch.LastGood", "every", every, 1)
        arguments.whole_number("nanwatch.LastGood", "keep", keep, 1)
        arguments.yes_or_no("nanwatch.LastGood", "disk_rests", disk_rests)
        arguments.folder("nanwatch.LastGood", "dir", dir)
        self._every, self._keep, self._disk_rests = every, keep, disk_rests
        self._objects: list[Any] = []
        self._said: set[str] = set()
        self._last: int | None = None
        """The step of the newest snapshot that was begun, or gone back to."""
        self.refused: str | None = None
        """What was not finite in the last snapshot that was not kept for it."""
        self._working: threading.Thread | None = None
        self._closed = False
        self.add(*objects)
        self._folder = None if dir is None else Path(dir)
        self._numbers = itertools.count()
        self._written: list[str] = []
        self._spare: dict[str, Tensor] = {}
        """Host memory of a snapshot that is no longer needed there, for the next one."""
        self._ranks: Ranks
        self._collect_from = 0.0
        self._kept: Shelf | None = None
        self._lasting: Shelf
        """Where snapshots stay; others may be kept elsewhere for a while."""
        if not are_to_come():
            self._open()

    def add(self, *objects: Any) -> None:
        """More objects to take along. Snapshots from before do not hold them and cannot be gone back to, so
        the next `step` takes one."""
        for thing in _flat(objects):
            if not can_be_taken(thing):
                raise NanwatchError(say("snapshot.not_an_object", found=type(thing).__name__))
            if not any(thing is known or thing in _inside(known) for known in self._objects):
                self._objects.append(thing)
                self._last = None

    def forget_the_dead(self) -> None:
        """Objects that nobody else holds any more: of a training that is over."""
        self.wait()
        count, held = len(self._objects), [_weakly(thing) for thing in self._objects]
        self._objects = []
        self._collect()
        self._objects = [thing for weakly in held if (thing := weakly()) is not None]
        if len(self._objects) < count:
            self._last = None

    def _collect(self) -> None:
        """What is dead and refers to itself. Takes a few tenths of a second: not for each of a hundred
        optimizers that are made one after the other."""
        began = time.perf_counter()
        if began >= self._collect_from:
            gc.collect()
            now = time.perf_counter()
            self._collect_from = now + BETWEEN_COLLECTIONS * (now - began)

    def step(self, step: int) -> bool:
        """Takes a snapshot when one is due: at the first call, and whenever `every` steps are full. Whether
        one was begun."""
        if self._closed or not self._is_due(step) or _is_capturing():
            return False
        self._last = step
        self.wait()
        try:
            self._open()
            id = f"{self._generation}-{next(self._numbers):06d}-step{step}"
            spare, self._spare = self._spare, {}
            state = take(self._objects, step, spare)
            work = threading.Thread(target=self._judge_and_keep, args=(id, state), name="nanwatch-last-good")
            work.start()
            self._working = work
            return True
        except Exception as error:
            let_through(error)
            self._say_once("failed", say("snapshot.not_taken", step=step, error=describe(error)))
            return False

    def rollback(self, random: bool = True, before: int | None = None) -> int:
        """Puts everything back as it was in the newest good snapshot, and returns its step. On several ranks
        all of them must call it, and all go back to the same one. `random=False` leaves the random states as
        they are: other batches come than those that led astray. `before`: to one of an earlier step than
        this, if there is one."""
        self.wait()
        self._open()
        ids = self._shelf.ids()
        some = bool(ids)
        if before is not None:
            ids = [id for id in ids if int(id.rpartition("step")[2]) < before] or ids
        while True:
            id, state = next(((id, s) for id in ids if (s := self._usable(id)) is not None), ("", None))
            proposals = self._ranks.proposals(id)
            if state is None or "" in proposals:
                raise NanwatchError(say("snapshot.none_usable" if some else "snapshot.none"))
            agreed = min(proposals)
            if agreed != max(proposals):
                ids = [other for other in ids if other <= agreed]
                continue
            done = "yes" if self._put_back(id, state, random) else "no"
            if "no" not in self._ranks.proposals(done):
                self._last = state.step
                return state.step
            ids = [other for other in ids if other < agreed]

    def wait(self) -> None:
        """Until the snapshot that is being judged and written, if any, is kept."""
        if self._working is not None:
            self._working.join()
            self._working = None

    def close(self) -> None:
        """Waits for the snapshot that is being written, and takes no more. With `dir` the newest is on
        disk then."""
        self.wait()
        if not self._closed:
            self._closed = True
            if self._kept is not None:
                self._write_newest()
                self._kept.close()

    def __enter__(self) -> LastGood:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> None:
        """Where snapshots are kept: not before the ranks have met, since each has its own."""
        if self._kept is not None:
            return
        self._ranks = Ranks()
        kept: Shelf = InMemory()
        self._lasting = kept
        if self._folder is not None:
            self._lasting = kept = disk = OnDisk(self._folder, self._ranks.rank, self._ranks.size)
            if self._disk_rests and self._ranks.size == 1:  # several hold the same ones
                kept = RestingDisk(disk)
        newest = max((int(id.split("-")[0]) for id in kept.ids()), default=0)
        self._generation = f"{self._ranks.generation(newest):019d}"
        self._kept = kept

    @property
    def _shelf(self) -> Shelf:
        assert self._kept is not None
        return self._kept

    def _is_due(self, step: int) -> bool:
        return self._last is None or step // self._every != self._last // self._every

    def _judge_and_keep(self, id: str, state: State) -> None:
        """In a thread of its own: the snapshot counts when it is finite and whole."""
        try:
            compiled.stay_behind()
            bad = what_is_not_finite(state)
            if bad is not None:
                self._spare = state.tensors
                self.refused = bad
                self._say_once("not finite", say("snapshot.not_finite", step=state.step, name=bad))
                return
            if state.left_out:
                keys = ", ".join(state.left_out)
                self._say_once(keys, say("snapshot.left_out", keys=keys))
            self._spare = self._shelf.put(id, state)
            self._said -= {"not finite", "failed"}
            self._written.append(id)
            self._ranks.tell(self._written)
            self._drop_old(state)
        except Exception as error:
            self._say_once("failed", say("snapshot.not_kept", step=state.step, error=describe(error)))

    def _drop_old(self, newest: State) -> None:
        """All but the newest `keep` that every rank has, as many that will stay, and newer ones that others
        may be writing. Those of earlier runs go when this run has enough; those of another model stay."""
        ids, lasting = self._shelf.ids(), self._lasting.ids()
        mine = [id for id in ids if id in self._written]
        common = self._ranks.written_by_all(mine)
        staying = [id for id in common if id in lasting][: self._keep]
        pending = [id for id in mine if not common or id > common[0]]
        needed = {*common[: self._keep], *staying, *pending[: max(LAG, self._keep)]}
        enough = len(staying) == self._keep
        for id in ids:
            if id not in needed and (id in mine or (enough and self._shelf.is_of(id, newest.signature()))):
                self._spare = self._shelf.drop(id) or self._spare
        self._written = [id for id in mine if id in needed]

    def _write_newest(self) -> None:
        """To disk, if it lies in memory only."""
        try:
            newest = next(iter(self._shelf.ids()), None)
            if newest is None or newest in self._lasting.ids():
                return
            state = self._shelf.get(newest)
            with plain_dispatch():
                self._lasting.put(newest, state)
        except Exception as error:
            warn(say("snapshot.last_not_written", error=describe(error)))
            return
        with contextlib.suppress(OSError):
            self._drop_old(state)

    def _usable(self, id: str) -> State | None:
        """The snapshot, if it is whole, finite, and of these objects."""
        try:
            state = self._shelf.get(id)
            bad = what_is_not_finite(state)
            if bad is not None:
                raise Unfit(say("snapshot.holds_non_finite", name=bad))
            check(state, self._objects)
            return state
        except Exception as error:
            self._pass_over(id, error)
            return None

    def _put_back(self, id: str, state: State, random: bool) -> bool:
        try:
            put_back(state, self._objects, random)
            return True
        except Unfit as error:
            self._pass_over(id, error)
            return False

    def _pass_over(self, id: str, error: Exception) -> None:
        why = str(error) if isinstance(error, Unfit) else describe(error)
        self._say_once(id, say("snapshot.passed_over", snapshot=self._shelf.describe(id), why=why))

    def _say_once(self, what: str, sentence: str) -> None:
        if what not in self._said:
            self._said.add(what)
            warn(sentence)


def _flat(objects: Iterable[Any]) -> Iterator[Any]:
    for thing in objects:
        if isinstance(thing, list | tuple):
            yield from _flat(thing)
        else:
            yield thing


def _inside(thing: Any) -> Iterator[nn.Module]:
    """What is taken with it."""
    return thing.modules() if isinstance(thing, nn.Module) else iter(())


def _is_capturing() -> bool:
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _weakly(thing: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing
