"""Where all ranks write one checkpoint together, they decide together."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from nanwatch.act.kept_aside import free_number
from nanwatch.messages import say
from nanwatch.watching.ranks import PATIENCE, meet
from nanwatch.watching.shield import warn

GOOD = 0
FAILED = 1 << 30
"""The gate has failed on some rank: none of them has one for this save."""


class Agreement:
    """The ranks ask each other once, for each process group, whether all of them come here.

    0 says that the checkpoint may have its name, else it is the number for `folder_aside`: the same on all
    ranks that decide together. `bad`: what this rank has found in its part, None if it could not look. Every
    rank comes here before any of them writes.
    """

    def __init__(self) -> None:
        self._together: dict[str, bool] = {}

    def on_folder(self, bad: bool | None, path: str) -> int:
        """For a folder to which every rank adds files of its own. Where not all come, because not all have a
        gate or the program lets one rank save, each decides for its own files."""
        mine = _number(bad, path)
        return _without_failure(self._worst(mine, None, "folder", mine))

    def on_checkpoint(self, bad: bool | None, path: str, group: Any, no_dist: bool) -> int:
        """For a checkpoint that is of use only as a whole. Where not all come, all go through."""
        mine = _number(bad, path)
        return _without_failure(mine if no_dist else self._worst(mine, group, "checkpoint", FAILED))

    def _worst(self, mine: int, group: Any, what: str, if_alone: int) -> int:
        if not (dist.is_available() and dist.is_initialized()):
            return mine
        group = group if group is not None else dist.group.WORLD
        if group.size() < 2:
            return mine
        name = f"{group.group_name}/gate/{what}"
        if name not in self._together:
            self._together[name] = meet(group, name, PATIENCE)
            if not self._together[name]:
                warn(say("gate.ranks_alone"))
        if not self._together[name]:
            return if_alone
        flag = torch.tensor([mine], dtype=torch.int32, device=_device_of(group))
        dist.all_reduce(flag, dist.ReduceOp.MAX, group)
        return int(flag.item())


def _number(bad: bool | None, path: str) -> int:
    return FAILED if bad is None else free_number(path) if bad else GOOD


def _without_failure(worst: int) -> int:
    return GOOD if worst == FAILED else worst


def _device_of(group: Any) -> torch.device:
    kinds = [device.type for device in group._device_types]
    return torch.device("cpu" if "cpu" in kinds else kinds[0])
