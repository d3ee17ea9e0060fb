"""An update made on copies: of the parameters, the gradients and, if wanted, the state. The optimizer stays
as it is."""

from __future__ import annotations

import contextlib
import copy
from collections import defaultdict
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nanwatch.replay.update_again import give_attributes
from nanwatch.tensors import is_finite

GRADIENT = 1e-3
"""Stands in for gradients that are gone or not finite."""


def update_of(
    optimizer: torch.optim.Optimizer,
    keep_state: bool,
    around: TorchDispatchMode | None = None,
    changes: dict[str, Any] | None = None,
) -> bool | None:
    """Whether an update leaves finite parameters; None when it cannot be made."""
    made = updated(optimizer, keep_state, around, changes)
    return None if made is None else all(is_finite(p) for p in made)


def updated(
    optimizer: torch.optim.Optimizer,
    keep_state: bool,
    around: TorchDispatchMode | None = None,
    changes: dict[str, Any] | None = None,
) -> list[torch.Tensor] | None:
    """The parameters that an update leaves; None when it cannot be made. `keep_state`: with a copy of the
    optimizer's state, else as if it were the first. `changes`: other settings for every group."""
    twin: Any = object.__new__(type(optimizer))
    twin.state = defaultdict(dict)
    twin.param_groups = []
    copies: dict[int, torch.Tensor] = {}
    for group in optimizer.param_groups:
        copies.update({id(p): _copy(p, optimizer, twin, keep_state) for p in group["params"]})
        own = [copies[id(p)] for p in group["params"]]
        twin.param_groups.append({**group, **(changes or {}), "params": own})
    try:
        give_attributes(twin, optimizer, copies)
        with torch.no_grad(), around or contextlib.nullcontext():
            type(optimizer).step(twin)
    except Exception:
        return None
    return [p.detach() for group in twin.param_groups for p in group["params"]]


def _copy(
    parameter: Any, optimizer: torch.optim.Optimizer, twin: Any, keep_state: bool
) -> torch.nn.Parameter:
    made = torch.nn.Parameter(torch.nan_to_num(parameter.detach(), 0.0, 0.0, 0.0))
    given = parameter.grad
    fine = given is not None and given.layout is torch.strided and is_finite(given)
    made.grad = given.detach().clone() if fine else torch.full_like(made, GRADIENT)
    if keep_state and parameter in optimizer.state:
        twin.state[made] = {
            k: v.clone() if isinstance(v, torch.Tensor) else copy.copy(v)
            for k, v in optimizer.state[parameter].items()
        }
    return made
