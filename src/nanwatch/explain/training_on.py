"""The last recorded step trained on from weights of the usual size, with the program's own settings and with
others: does the rise repeat, and what stops it?

The weights that led here are gone: they have grown. So they are brought back to the size that training begins
with, keeping their direction, and the step is trained on from there on copies of the weights.
"""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from nanwatch.explain.case import Case
from nanwatch.explain.history import usual_size, usual_weights, weights_on
from nanwatch.replay.again import Changes, run_again
from nanwatch.replay.op_facts import named_arguments, op_facts, tensors_by_name
from nanwatch.replay.tracer import OpTracer, measurable
from nanwatch.replay.update_again import HOOKS
from nanwatch.watching.tape import Tape

STEPS = 12
RISEN = 100.0
"""Grown this many times is a rise."""
STEADY = 3.0
"""Grown no more than this many times is none."""
LARGEST = 200_000_000
"""Weights in all, of which two copies are made."""


@dataclass(frozen=True)
class How:
    """The settings to train with; those of the program, unless said."""

    factor: float = 1.0
    """Times the program's rate."""
    clip: float | None = None
    """The norm to which gradients are clipped."""
    adamw: float | None = None
    """The rate of an AdamW in the place of the program's optimizer."""


@dataclass(frozen=True)
class Rise:
    """With the program's own settings the sizes rose this many times in as many steps."""

    optimizer: Optimizer
    tape: Tape
    times: float
    steps: int


def can_train(case: Case) -> bool:
    optimizer = diverging_optimizer(case)
    if optimizer is None or not any(e.kind == "backward" for e in case.tape.entries):
        return False
    parameters = _parameters(optimizer)
    plain = all(type(p) in (torch.Tensor, torch.nn.Parameter) and p.is_leaf for p in parameters)
    return plain and sum(p.numel() for p in parameters) <= LARGEST and rate_of(optimizer) > 0


def own_rise(case: Case) -> Rise | None:
    """The rise with the program's settings, `times` below RISEN when there is none; None when no recorded
    step trains the optimizer's weights."""
    optimizer = diverging_optimizer(case)
    if optimizer is None:
        return None
    for tape in _tapes(case):
        own = _train(case, optimizer, tape, How(), STEPS)
        if len(own) >= 2:
            return Rise(optimizer, tape, max(own) / own[0], len(own) - 1)
    return None


def stays(case: Case, rise: Rise, how: How) -> bool:
    """Whether there is no rise with these settings."""
    sizes = _train(case, rise.optimizer, rise.tape, how, max(rise.steps, 4))
    return len(sizes) > max(rise.steps, 3) and max(sizes) <= STEADY * sizes[0]


def diverging_optimizer(case: Case) -> Optimizer | None:
    """Of the optimizer of this step and those of the updates before: the one whose weights are largest."""
    found = [case.trouble.optimizer, *(update.optimizer() for update in case.trouble.last_updates)]
    known = [o for o in found if isinstance(o, Optimizer) and _parameters(o)]
    return max(known, key=_times, default=None)


def _times(optimizer: Optimizer) -> float:
    sizes = [float(p.detach().abs().max()) / usual_size(p) for p in _parameters(optimizer) if p.numel()]
    return max((math.inf if math.isnan(s) else s for s in sizes), default=0.0)


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    every = [p for group in optimizer.param_groups for p in group["params"]]
    return [p for p in every if measurable(p)]


def rate_of(optimizer: Optimizer) -> float:
    rates = [float(g.get("lr", 0.0)) for g in optimizer.param_groups]
    return max((r for r in rates if math.isfinite(r)), default=0.0)


def _tapes(case: Case) -> list[Tape]:
    """The last step that was good, then the bad one."""
    good = [t for t in reversed(case.trouble.earlier) if any(e.kind == "backward" for e in t.entries)]
    return [*good, case.tape]


def _train(case: Case, optimizer: Optimizer, tape: Tape, how: How, steps: int) -> list[float]:
    """How large gradients and loss were, step by step; stops when they have risen, or are not finite."""
    sizes: list[float] = []
    with _on_copies(optimizer, tape) as copies:
        twin = _twin(optimizer, copies, how)
        earlier = tuple(t for t in case.trouble.earlier if t.step < tape.step)
        for _ in range(steps + 1):
            if case.budget.spent:
                break
            size = _one_step(case, tape, earlier, copies, twin, how.clip)
            if size is None:
                return []
            sizes.append(size if math.isfinite(size) else 1e38)
            if not math.isfinite(size) or (len(sizes) > 2 and size > 10 * RISEN * sizes[0]):
                break
    return sizes


def _one_step(
    case: Case,
    tape: Tape,
    earlier: tuple[Tape, ...],
    copies: list[tuple[torch.Tensor, torch.nn.Parameter]],
    twin: Any,
    clip: float | None,
) -> float | None:
    """Forward, backward and update; the norm of the gradients, None when there are none for these weights."""
    for parameter, copy in copies:
        parameter.data = copy.data
    again = run_again(tape, earlier, case.calls, True, Changes(tracer=_Quiet, around=contextlib.nullcontext))
    if again.error is not None:
        return None
    sums: dict[int, torch.Tensor] = {}
    for parameter, gradient in again.gradients:
        had = sums.get(id(parameter))
        sums[id(parameter)] = gradient.detach() if had is None else had + gradient.detach()
    mine = [sums[id(p)] for p, _ in copies if id(p) in sums]
    if not mine:
        return None
    for parameter, copy in copies:
        copy.grad = sums[id(parameter)].clone() if id(parameter) in sums else None
    if clip is not None:
        torch.nn.utils.clip_grad_norm_([c for _, c in copies if c.grad is not None], clip)
    with torch.no_grad():
        type(twin).step(twin)
    return math.sqrt(sum(float(g.double().square().sum()) for g in mine if not g.is_complex()))


@contextlib.contextmanager
def _on_copies(optimizer: Optimizer, tape: Tape) -> Iterator[list[tuple[torch.Tensor, torch.nn.Parameter]]]:
    """(parameter, copy of the usual size); the parameters have their own memory back afterwards."""
    trained = _parameters(optimizer)
    with usual_weights([*trained, *weights_on(tape)]):
        yield [(p, torch.nn.Parameter(p.detach().clone())) for p in trained]


def _twin(optimizer: Optimizer, copies: list[tuple[torch.Tensor, torch.nn.Parameter]], how: How) -> Any:
    """An optimizer of the same kind, or an AdamW, over the copies, with nothing behind it."""
    if how.adamw is not None:
        return torch.optim.AdamW([c for _, c in copies], lr=how.adamw, weight_decay=0.01)
    by_id = {id(p): c for p, c in copies}
    twin: Any = object.__new__(type(optimizer))
    twin.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k not in ("step", "found_inf")})
    twin.__dict__.update({name: OrderedDict() for name in HOOKS})
    twin.state = defaultdict(dict)
    twin.param_groups = [
        {
            **group,
            "params": [by_id[id(p)] for p in group["params"] if id(p) in by_id],
            "lr": float(group.get("lr", 0.0)) * how.factor,
        }
        for group in optimizer.param_groups
    ]
    return twin


class _Quiet(OpTracer):
    """Looks at nothing, and still keeps what belongs to the program from being written."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        facts = op_facts(function)
        if facts.written and self.untouched is not None:
            inputs = tensors_by_name(named_arguments(facts, args, kwargs or {}))
            self.untouched.about_to_write([t for n, t in inputs if n.split("[")[0] in facts.written])
        return function(*args, **(kwargs or {}))
