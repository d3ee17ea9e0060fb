"""No rank decides alone: where models are trained in lockstep, all ranks take the worst verdict of any.

Lockstep is where a data parallel or sharded wrapper is called: the ranks of its process group make the same
updates in the same order, so one more small collective per update cannot hang. All of them must be watched,
which they ask each other once. Elsewhere nothing is sent.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from nanwatch.messages import say
from nanwatch.watching.shield import warn

REPLICATED = "DistributedDataParallel"
SHARDED = frozenset(("FullyShardedDataParallel", "FSDPModule"))

SEVERITY = (None, "state", "gradients", "loss")
"""What a rank sees in its step, the worst last: bad gradients may be another rank's, a bad loss is not.
"state": the step is finite, what it was made with is damaged."""
LEAVING = len(SEVERITY)
"""Worse than any verdict: nanwatch has failed on that rank."""

PATIENCE = 60.0
"""Seconds that a rank waits, once, for the others to say that they are watched too."""
PATIENCE_AT_THE_END = 300.0
"""Seconds that a rank which is to stop waits for the others' reports: its end may be theirs."""


class NeedsOtherRanks(Exception):
    """A step that cannot be run again: it talks to other ranks, and they are not there to answer."""

    def __init__(self, what: Any) -> None:
        super().__init__(say("watch.needs_other_ranks", what=what))


class Lockstep:
    """The ranks that go together with this one, and the exchange of verdicts with them."""

    def __init__(self, step_aside: Callable[[str], None]) -> None:
        self._step_aside = step_aside
        self._groups: dict[str, Any] = {}
        self._asked: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self.replicas: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._due: bool | None = None
        """An exchange is due in the step that has begun: on the device, or not."""
        self._answering: Any = None
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
        for group in groups_of(module):
            name = _name_of(group)
            if name in self._groups or group.size() < 2:
                continue
            self._groups[name] = group if meet(group, f"{name}/watched", PATIENCE) else None
            if self._groups[name] is None:
                warn(say("watch.ranks_alone"))

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
        self._due = on_device if self._groups and self.groups else None

    def agreed(self, seen: str | None) -> str | None:
        """This rank's verdict, or "rank" when another one's is worse. Waits for all ranks."""
        groups = self.groups
        if not groups:
            return seen
        mine = SEVERITY.index(seen)
        worst = self._exchange(mine, groups)
        if worst == LEAVING:
            self._groups.clear()
            self._step_aside(say("watch.other_rank_left"))
            return None
        self._bad, self.only_state = worst > 0, worst == SEVERITY.index("state")
        return seen if worst == mine else "rank"

    def all_can(self, can: bool) -> bool:
        """Whether this and every other rank can do what is to be done together. Waits for all ranks: they
        must all ask, and nothing may go wrong between their last exchange and this."""
        worst = self._exchange(0 if can else 1, self.groups)
        if worst == LEAVING:
            self._groups.clear()
            self._step_aside(say("watch.other_rank_left"))
        return worst == 0

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

    def _exchange(self, verdict: int, groups: list[Any]) -> int:
        self._due = None
        for group in groups:
            flag = torch.tensor([verdict], dtype=torch.int32, device=_device_of(group))
            torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX, group)
            verdict = int(flag.item())
        return verdict

    def leave(self, on_device: Callable[[Optimizer], bool]) -> None:
        """nanwatch has failed on this rank: the others must hear of it, or they would wait for ever."""
        if not self.groups:
            return
        if self._due is False:
            self._exchange(LEAVING, self.groups)
            return
        if self._due:
            self.agree_on_device(torch.zeros((), device=_device_of(self.groups[0])))

        def answer(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if on_device(optimizer):
                self._obey_on_device(optimizer)
            else:
                self.end()
                self._exchange(LEAVING, self.groups)

        self._answering = register_optimizer_step_pre_hook(answer)

    def end(self) -> None:
        """The watch is over, on all ranks."""
        if self._answering is not None:
            self._answering.remove()
            self._answering = None

    def _obey_on_device(self, optimizer: Optimizer) -> None:
        """Where nobody reads the verdict in time: do as the others do, from here on."""
        flag = torch.zeros((), device=optimizer.param_groups[0]["params"][0].device)
        self.agree_on_device(flag)
        optimizer.found_inf = flag  # type: ignore[attr-defined]


def groups_of(module: nn.Module) -> Iterator[Any]:
    """The process groups that update this module together."""
    for m in module.modules():
        if is_replicated(m) or _named(m, "FullyShardedDataParallel"):
            yield from (g for g in (_get(m, "process_group"), _get(m, "_inter_node_pg")) if g is not None)
    meshes = {id(mesh): mesh for p in module.parameters() if (mesh := _get(p, "device_mesh")) is not None}
    for mesh in meshes.values():
        if is_sharded(module):
            yield from _whole(mesh).get_all_groups()


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
