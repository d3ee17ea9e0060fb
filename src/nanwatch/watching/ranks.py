"""No rank decides alone: where models are trained in lockstep, all ranks take the worst verdict of any.

Lockstep is where a data parallel or sharded wrapper is called: the ranks of its process group make the same
updates in the same order, so one more small collective per update cannot hang. All of them must be watched,
which they ask each other once. Elsewhere nothing is sent.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from nanwatch.messages import say
from nanwatch.watching.leaving import Leaving
from nanwatch.watching.shield import warn

REPLICATED = "DistributedDataParallel"
SHARDED = frozenset(("FullyShardedDataParallel", "FSDPModule"))

SEVERITY = (None, "left out", "state", "overflow", "gradients", "loss")
"""What a rank sees in its step, the worst last: bad gradients may be another rank's, a bad loss is not.
"left out": the gradients are finite, and of a batch that another optimizer was not given. "state": the step
is finite, what it was made with is damaged. "overflow": the gradients are not finite with the scale of a
GradScaler."""
OF_ALL = ("left out", "overflow")
"""What one rank sees is then so for all: to be left out by all of them, or for all of them to find out
whether it is only the scale."""
LEAVING = len(SEVERITY)
"""Worse than any verdict: nanwatch has failed on that rank."""

NO_WISHES = 2**30
"""In the place of the rank that wishes: one that is there cannot do what all would have to."""

PATIENCE = 60.0
"""Seconds that a rank waits, once, for the others to say that they are watched too."""
PATIENCE_AT_THE_END = 300.0
"""Seconds that a rank which is to stop waits for the others' reports: its end may be theirs."""


class NeedsOtherRanks(Exception):
    """A step that cannot be run again: it talks to other ranks, and they are not there to answer."""

    def __init__(self, what: Any) -> None:
        super().__init__(say("watch.needs_other_ranks", what=what))


class Wishes(Protocol):
    """What a rank may ask all others to do with it: before the same update on all of them, or on none."""

    def honour(self, rank: int | None) -> bool:
        """Does what `rank` has asked for, None being this one. Whether it could."""

    def settle(self, by_all: bool) -> None:
        """All ranks have done it; or it is to be undone, since one could not."""


class Lockstep:
    """The ranks that go together with this one, and the exchange of verdicts with them."""

    def __init__(self, step_aside: Callable[[str], None]) -> None:
        self._step_aside = step_aside
        self._groups: dict[str, Any] = {}
        self._asked: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self.replicas: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._due: bool | None = None
        """An exchange is due in the step that has begun: on the device, or not."""
        self._leaving: Leaving | None = None
        self.together = False
        """A model of this process is trained together with other ranks, be they watched or not."""
        self.wishes: Wishes | None = None
        self.wish = False
        """This rank asks for something: said with its next verdict."""
        self._grids: set[frozenset[str]] = set()
        """Names of groups that are the lines of one grid of ranks."""
        self._all_hear = True
        self._bad = False
        """The ranks have agreed that this step is bad."""
        self.only_state = False
        """And that its losses and gradients are finite: to skip it would help nothing."""

    def note(self, module: nn.Module) -> None:
        """A root module is about to be called: is it trained together with other ranks?"""
        if not _several_ranks() or module in self._asked:
            return
        self._asked.add(module)
        self.replicas.update(m for m in module.modules() if is_replicated(m))
        for grid in grids_of(module):
            several = {_name_of(group): group for group in grid if group.size() > 1}
            for name, group in several.items():
                if name not in self._groups:
                    self._meet(name, group)
            self._grids.add(frozenset(several))
        self._all_hear = self._reach_all()

    def _meet(self, name: str, group: Any) -> None:
        self.together = True
        self._groups[name] = group if meet(group, f"{name}/watched", PATIENCE) else None
        if self._groups[name] is None:
            warn(say("watch.ranks_alone"))

    def _reach_all(self) -> bool:
        """Whether what goes from group to group once comes to all ranks that any of them goes together with:
        where all groups are lines of one grid, or one of them holds the ranks of all others."""
        if any(group is None for group in self._groups.values()):
            return False
        if len(self._groups) < 2 or any(self._groups.keys() <= grid for grid in self._grids):
            return True
        ranks = [set(torch.distributed.get_process_group_ranks(g)) for g in self._groups.values()]
        return max(map(len, ranks)) == len(set().union(*ranks))

    def exchange_of(self, module: nn.Module) -> tuple[bool, bool] | None:
        """What the call of a data parallel wrapper that is about to be made exchanges (`Entry.exchange`)."""
        if module not in self.replicas:
            return None
        shares = _get(module, "require_forward_param_sync") and _get(module, "broadcast_buffers")
        return bool(_get(module, "require_backward_grad_sync")), bool(shares)

    @property
    def groups(self) -> list[Any]:
        """None while ranks may run out of data (`with model.join():`): the others would wait for them."""
        if not self._groups or any(_joining(m) for m in self.replicas):
            return []
        return [group for group in self._groups.values() if group is not None]

    def step_begins(self, on_device: bool) -> None:
        self._bad = False
        if self._groups:
            self._due = on_device if self.groups else None
            self.wish = self.wish and self._due is not None

    def agreed(self, seen: str | None) -> str | None:
        """This rank's verdict, or "rank" when another one's is worse and not `OF_ALL`. Waits for all."""
        groups = self.groups
        if not groups:
            return seen
        mine = SEVERITY.index(seen)
        wish, self.wish = self.wish, False
        worst, asked_by = self._exchange(mine, groups, wish)
        if worst == LEAVING:
            self._others_left()
            return None
        if (asked_by is not None or wish) and not self._honour(asked_by):
            return None
        self._bad, self.only_state = worst > SEVERITY.index("left out"), worst == SEVERITY.index("state")
        if SEVERITY[worst] in OF_ALL:
            return SEVERITY[worst]
        return seen if worst == mine else "rank"

    def _honour(self, rank: int | None) -> bool:
        """What a rank has asked for, on all or on none; None: this rank's is turned down. False: another rank
        has left meanwhile."""
        by_all = rank is not None and self.all_can(self._could(rank))
        if self.wishes is not None:
            self.wishes.settle(by_all)
        return bool(self._groups)

    def _could(self, rank: int) -> bool:
        """Nothing may leave this: the others wait for the answer."""
        try:
            asked_by = None if rank == torch.distributed.get_rank() else rank
            return self.wishes is not None and self.wishes.honour(asked_by)
        except Exception:
            return False

    def all_can(self, can: bool) -> bool:
        """Whether this and every other rank can do what is to be done together. Waits for all ranks: they
        must all ask, and nothing may go wrong between their last exchange and this."""
        worst, _ = self._exchange(0 if can else 1, self.groups)
        if worst == LEAVING:
            self._others_left()
        return worst == 0

    def _others_left(self) -> None:
        self._groups.clear()
        self._step_aside(say("watch.other_rank_left"))

    def agreed_late(self) -> None:
        """The device has told all ranks that a step was bad."""
        self._bad = bool(self.groups)

    def wait_for_reports(self) -> None:
        """All ranks are about to stop. A launcher ends the others with the first that does: wait until every
        report is written."""
        if not self._bad:
            return
        for name, group in self._groups.items():
            try:
                if group is not None:
                    meet(group, f"{name}/reported", PATIENCE_AT_THE_END)
            except Exception:
                return  # whoever held the store has gone: all there is to wait for is over

    def agree_on_device(self, flag: torch.Tensor) -> None:
        """The worst of all ranks for a flag on the device, in place, without waiting."""
        self._due = None
        for group in self.groups:
            there = flag.to(_device_of(group, flag.device.type))
            torch.distributed.all_reduce(there, torch.distributed.ReduceOp.MAX, group)
            if there is not flag:
                flag.copy_(there)

    def _exchange(self, verdict: int, groups: list[Any], wish: bool = False) -> tuple[int, int | None]:
        """The worst verdict, and the first rank that wishes, if any and if all can hear of it. From one group
        to the next both are handed on."""
        self._due = None
        numbers = [verdict, self._number_of(wish)]
        for group in groups:
            flag = torch.tensor(numbers, dtype=torch.int32, device=_device_of(group))
            torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX, group)
            numbers = flag.tolist()
        worst, wished = numbers
        heard = 0 < wished < NO_WISHES
        return worst, torch.distributed.get_world_size() - wished if heard else None

    def _number_of(self, wish: bool) -> int:
        """The first rank's wish is the largest number but one."""
        if self.wishes is None or not self._all_hear:
            return NO_WISHES
        return torch.distributed.get_world_size() - torch.distributed.get_rank() if wish else 0

    def leave(self, on_device: Callable[[Optimizer], bool]) -> None:
        """nanwatch has failed on this rank: the others must hear of it, or they would wait for ever."""
        if not self.groups:
            return
        if self._due is False:
            self._tell_of_leaving()
            return
        if self._due:
            self.agree_on_device(torch.zeros((), device=_device_of(self.groups[0])))
        self._leaving = Leaving(self._tell_of_leaving, self._obey_on_device, on_device)

    def _tell_of_leaving(self) -> None:
        self._exchange(LEAVING, self.groups)

    def end(self) -> None:
        """The watch is over, on all ranks."""
        if self._leaving is not None:
            self._leaving.end()
            self._leaving = None

    def _obey_on_device(self, optimizer: Optimizer) -> None:
        """Where nobody reads the verdict in time: do as the others do, from here on."""
        flag = torch.zeros((), device=optimizer.param_groups[0]["params"][0].device)
        self.agree_on_device(flag)
        optimizer.found_inf = flag  # type: ignore[attr-defined]


def grids_of(module: nn.Module) -> Iterator[list[Any]]:
    """The process groups that update this module together; in one list those that are the lines of one grid
    of ranks."""
    for m in module.modules():
        if is_replicated(m) or _named(m, "FullyShardedDataParallel"):
            yield [g for g in (_get(m, "process_group"), _get(m, "_inter_node_pg")) if g is not None]
    meshes = {id(mesh): mesh for p in module.parameters() if (mesh := _get(p, "device_mesh")) is not None}
    for mesh in meshes.values():
        if is_sharded(module):
            yield list(_whole(mesh).get_all_groups())


def is_replicated(module: nn.Module) -> bool:
    """Whether this is a wrapper that averages the gradients of what it holds."""
    return _named(module, REPLICATED)


def is_sharded(module: nn.Module) -> bool:
    """Whether calling this module needs the other ranks to call it too."""
    return any(_named(m, name) for m in module.modules() for name in SHARDED)


def is_collective(function: Any) -> bool:
    """Whether an op waits for other ranks."""
    namespace = getattr(function, "namespace", "")
    return "c10d" in namespace or namespace in ("symm_mem", "_dtensor")


def meet(group: Any, where: str, patience: float) -> bool:
    """Whether every rank of the group comes here in time; all that come get the same answer."""
    store: Any = torch.distributed.distributed_c10d._get_default_store()
    key = f"nanwatch/{where}"
    meeting = store.compare_set(key, "", "0").decode()
    answer = f"{key}/{meeting}"
    if store.add(f"{answer}/here", 1) == group.size():
        store.compare_set(answer, "", "together")
    try:
        store.wait([answer], timedelta(seconds=patience))
    except Exception:
        store.compare_set(answer, "", "alone")
    store.compare_set(key, meeting, str(int(meeting) + 1))
    return bool(store.get(answer) == b"together")


_is_initialized = torch.distributed.is_initialized if torch.distributed.is_available() else bool


def _several_ranks() -> bool:
    return _is_initialized() and torch.distributed.get_world_size() > 1


def _named(module: nn.Module, name: str) -> bool:
    return any(cls.__name__ == name for cls in type(module).__mro__)


def _get(thing: Any, name: str) -> Any:
    return getattr(thing, name, None)


def _name_of(group: Any) -> str:
    ranks = "-".join(map(str, torch.distributed.get_process_group_ranks(group)))
    return f"{group.group_name}/{ranks}"


def _whole(mesh: Any) -> Any:
    """The mesh that this one is a part of: with tensor or pipeline parallelism all of it goes together."""
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    from torch.distributed.device_mesh import _mesh_resources

    return _mesh_resources.get_root_mesh(mesh)


def _joining(replica: nn.Module) -> bool:
    return bool(_get(_get(replica, "_join_config"), "enable"))


def _device_of(group: Any, wanted: str = "cpu") -> torch.device:
    """A kind of device that the group can send from: the wanted one if possible."""
    kinds = [device.type for device in group._device_types]
    return torch.device(wanted if wanted in kinds else kinds[0])
