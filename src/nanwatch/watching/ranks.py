"""No rank decides alone: where models are trained in lockstep, all ranks take the worst verdict of any.

Only where a data parallel or sharded wrapper is called: there every rank is known to make the same
updates in the same order, so one more small collective per update cannot hang. Elsewhere nothing is sent.
"""

from __future__ import annotations

import torch
from torch import nn

LOCKSTEP = frozenset(("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"))


def in_lockstep(module: nn.Module) -> bool:
    """Whether all ranks call this module, and update it, together."""
    if not _several_ranks():
        return False
    return any(cls.__name__ in LOCKSTEP for m in module.modules() for cls in type(m).__mro__)


def _several_ranks() -> bool:
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def worst_of_all(bad: bool) -> bool:
    """True on every rank when it is on any. Waits for all ranks."""
    device = torch.device("cuda") if torch.distributed.get_backend() == "nccl" else torch.device("cpu")
    flag = torch.tensor([int(bad)], dtype=torch.int32, device=device)
    torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
    return bool(flag.item())


def worst_on_device(flag: torch.Tensor) -> None:
    """The same for a flag on the device, in place, without waiting."""
    torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
