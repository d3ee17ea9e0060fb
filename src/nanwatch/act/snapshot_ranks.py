"""No rank goes back alone: a snapshot counts when every rank has its part of it.

The ranks talk through the store of the process group, not by collectives: a thread beside the training may do
so at any time, and a rank that does not come is waited for only in `agree`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from datetime import timedelta
from typing import Any

import torch

from nanwatch.errors import NanwatchError
from nanwatch.messages import say

PATIENCE = 300.0
"""Seconds that a rank waits for the others to come back to the same snapshot."""

_count = itertools.count()


def are_to_come() -> bool:
    """Whether a launcher has started several ranks, which have not met yet."""
    return not _have_met() and _from_launcher("WORLD_SIZE", 1) > 1


def _have_met() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _from_launcher(name: str, usual: int) -> int:
    given = os.environ.get(name, "")
    return int(given) if given.isdecimal() else usual


class Ranks:
    """All ranks that train together. A single process is rank 0 of 1."""

    def __init__(self) -> None:
        distributed = torch.distributed
        self.rank = distributed.get_rank() if _have_met() else _from_launcher("RANK", 0)
        self.size = distributed.get_world_size() if _have_met() else 1
        self._store: Any = None
        self._where = f"nanwatch/last-good/{next(_count)}"
        self._rounds = itertools.count()
        if self.size > 1:
            self._store = distributed.distributed_c10d._get_default_store()

    def generation(self, newest: int) -> int:
        """A number for this run, the same on all ranks, and greater than that of the runs before."""
        mine = max(time.time_ns(), newest + 1)
        if self._store is None:
            return mine
        return int(self._store.compare_set(f"{self._where}/generation", "", str(mine)))

    def tell(self, ids: list[str]) -> None:
        """Says which snapshots this rank has written. At the end of a run nobody may be left to hear it."""
        if self._store is not None:
            with contextlib.suppress(Exception):
                self._store.set(f"{self._where}/written/{self.rank}", json.dumps(ids))

    def written_by_all(self, mine: list[str]) -> list[str]:
        """Those of my snapshots that every other rank has written too, as far as it has said so by now."""
        common = set(mine)
        for rank in range(self.size):
            if rank != self.rank:
                common &= self._written_by(rank)
        return [id for id in mine if id in common]

    def _written_by(self, rank: int) -> set[str]:
        key = f"{self._where}/written/{rank}"
        try:
            return set(json.loads(self._store.get(key))) if self._store.check([key]) else set()
        except Exception:
            return set()

    def proposals(self, mine: str) -> list[str]:
        """What each rank proposes; waits for all."""
        if self._store is None:
            return [mine]
        where = f"{self._where}/round{next(self._rounds)}"
        self._store.set(f"{where}/{self.rank}", mine)
        keys = [f"{where}/{rank}" for rank in range(self.size)]
        try:
            self._store.wait(keys, timedelta(seconds=PATIENCE))
        except Exception as error:
            missing = [str(i) for i, key in enumerate(keys) if not self._store.check([key])]
            raise NanwatchError(
                say("snapshot.ranks_missing", ranks=", ".join(missing), seconds=int(PATIENCE))
            ) from error
        return [self._store.get(key).decode() for key in keys]
