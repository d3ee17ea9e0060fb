"""An update that made weights non-finite out of finite gradients, seen only at the next step: make it again.

The gradients of that update are gone. But its state is there (moments, step counts, hyperparameters), and so
is the norm the gradients had. So the update is made once more on copies, with stand-in gradients, until
the optimizer's own arithmetic goes bad again and shows which op it is.
"""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict, defaultdict
from typing import Any

import torch

from nanwatch.replay.trace import Op
from nanwatch.replay.tracer import OpTracer
from nanwatch.tensors import is_finite
from nanwatch.watching.module_calls import Scope
from nanwatch.watching.stack import Stack

HOOKS = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
)


def update_again(
    optimizer: torch.optim.Optimizer,
    step: int,
    stack: Stack,
    grad_norm: float | None,
    rates: tuple[Any, ...] = (),
) -> Op | None:
    """The op of `optimizer`'s own arithmetic that goes bad, or None if no stand-in gradient shows it."""
    for size in _sizes(optimizer, grad_norm):
        tracer = OpTracer(Scope())
        tracer.alone = True
        tracer.step, tracer.phase, tracer.base = step, "optimizer", stack
        tracer.boundary = sys._getframe()
        try:
            twin = _copy_with(optimizer, size)
            _set_rates(twin, rates)
            with torch.no_grad(), tracer:
                type(optimizer).step(twin)
        except Exception:
            continue
        born = [op for op in tracer.trace.ops.values() if op.makes_nan or op.makes_inf]
        if born:
            return born[0]
    return None


def _sizes(optimizer: torch.optim.Optimizer, grad_norm: float | None) -> list[float | None]:
    """How large to make the stand-in gradients; None takes the first moment, where there is one."""
    count = sum(p.numel() for p in _concerned(optimizer))
    typical = [] if not grad_norm or not count else [grad_norm / count**0.5, grad_norm]
    return [*typical, None, 0.0, 1e-3, 1.0]


def _concerned(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The parameters that the update has made bad; all of them when it is still to come."""
    every = [p for group in optimizer.param_groups for p in group["params"]]
    return [p for p in every if not is_finite(p)] or every


def _copy_with(optimizer: torch.optim.Optimizer, size: float | None) -> Any:
    """A copy of the optimizer over copies of the bad parameters, their bad values put to zero."""
    twin: Any = object.__new__(type(optimizer))
    twin.state = defaultdict(dict)
    twin.param_groups = []
    bad = {id(p) for p in _concerned(optimizer)}
    made: dict[int, torch.Tensor] = {}
    for group in optimizer.param_groups:
        copies = []
        for parameter in group["params"]:
            if id(parameter) not in bad:
                continue
            twin_parameter = torch.nn.Parameter(torch.nan_to_num(parameter.detach(), 0.0, 0.0, 0.0))
            state = {
                k: v.clone() if isinstance(v, torch.Tensor) else copy.copy(v)
                for k, v in optimizer.state.get(parameter, {}).items()
            }
            twin_parameter.grad = _stand_in(twin_parameter, parameter.grad, state, size)
            twin.state[twin_parameter] = state
            copies.append(twin_parameter)
            made[id(parameter)] = twin_parameter
        twin.param_groups.append({**group, "params": copies})
    give_attributes(twin, optimizer, made)
    return twin


def _set_rates(twin: Any, rates: tuple[Any, ...]) -> None:
    """As they were: a tensor holds what it holds now."""
    for group, rate in zip(twin.param_groups, rates, strict=False):
        if isinstance(rate, (int, float)):
            group["lr"] = rate


def give_attributes(twin: Any, optimizer: torch.optim.Optimizer, made: dict[int, torch.Tensor]) -> None:
    """What else the optimizer holds, copied: an optimizer of the program's own may keep its moments, or its
    parameters once more, in lists of its own. `made`: id of a parameter -> its copy."""
    known: dict[int, Any] = dict(made)
    for name, value in optimizer.__dict__.items():
        if name not in ("step", "state", "param_groups", *HOOKS):
            twin.__dict__[name] = copy.deepcopy(value, known)
    twin.__dict__.update({name: OrderedDict() for name in HOOKS})


def _stand_in(
    parameter: torch.Tensor, given: torch.Tensor | None, state: dict[str, Any], size: float | None
) -> torch.Tensor:
    if size is None and given is not None and is_finite(given):
        return given.detach().clone()
    moment = state.get("exp_avg", state.get("momentum_buffer"))
    if (
        size is None
        and isinstance(moment, torch.Tensor)
        and moment.shape == parameter.shape
        and is_finite(moment)
    ):
        return moment.detach().clone().to(parameter.dtype)
    return torch.full_like(parameter, 0.0 if size is None else size)
