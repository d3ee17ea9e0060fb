"""The last recorded step made again and again from weights of the usual size, with the program's own rate and
with lower ones: does the rise repeat, and what rate stops it?

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

from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.history import usual_size, usual_weights, weights_on
from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes, run_again
from nanwatch.replay.op_facts import named_arguments, op_facts, tensors_by_name
from nanwatch.replay.tracer import OpTracer, measurable
from nanwatch.replay.update_again import HOOKS
from nanwatch.watching.tape import Tape

NAME = "lower-rate"
TITLE = Text("training on from here with lower learning rates", "用更低的学习率从这里继续训练")
STOPS = Text(
    "with the program's rate {rate:.3g} the gradients grow {times:.3g} times in {steps} steps; "
    "with {lower:.3g} they do not",
    "用程序的学习率 {rate:.3g}，梯度在 {steps} 步内增长 {times:.3g} 倍；用 {lower:.3g} 则不增长",
)
GOES_ON = Text(
    "grows {times:.3g} times in {steps} steps, with lower rates too",
    "在 {steps} 步内增长 {times:.3g} 倍，降低学习率也一样",
)
NO_RISE = Text("no rise from weights of the usual size", "从正常大小的权重出发没有上升")

STEPS = 12
RISEN = 100.0
"""Grown this many times is a rise."""
STEADY = 3.0
"""Grown no more than this many times is none."""
FACTORS = (0.1, 0.01, 1e-3, 1e-5)
LARGEST = 200_000_000
"""Weights in all, of which two copies are made."""


@dataclass(frozen=True)
class Rates:
    rate: float
    lower: float
    """The first that was tried and did not rise."""
    times: float
    steps: int


def applies(case: Case) -> bool:
    optimizer = diverging_optimizer(case)
    if optimizer is None or not any(e.kind == "backward" for e in case.tape.entries):
        return False
    parameters = _parameters(optimizer)
    plain = all(type(p) in (torch.Tensor, torch.nn.Parameter) and p.is_leaf for p in parameters)
    return plain and sum(p.numel() for p in parameters) <= LARGEST and _rate(optimizer) > 0


def run(case: Case) -> Outcome:
    optimizer = diverging_optimizer(case)
    if optimizer is None:
        return Outcome(None, "")
    for tape in _tapes(case):
        found = _compare(case, optimizer, tape)
        if found is not None:
            return found
    return Outcome(None, "")


def _compare(case: Case, optimizer: Optimizer, tape: Tape) -> Outcome | None:
    """None when this tape does not train the optimizer's weights."""
    rate = _rate(optimizer)
    own = _train(case, optimizer, tape, 1.0, STEPS)
    if len(own) < 2:
        return None
    times, steps = max(own) / own[0], len(own) - 1
    if times < RISEN:
        return Outcome(None, NO_RISE.say(), None)
    for factor in FACTORS:
        lower = _train(case, optimizer, tape, factor, max(steps, 4))
        if len(lower) > max(steps, 3) and max(lower) <= STEADY * lower[0]:
            found = Rates(rate, rate * factor, times, steps)
            return Outcome(True, STOPS.say(rate=rate, times=times, steps=steps, lower=found.lower), found)
    return Outcome(False, GOES_ON.say(times=times, steps=steps))


def diverging_optimizer(case: Case) -> Optimizer | None:
    """Of the optimizer of this step and that of the last update: the one whose weights are largest."""
    last = case.trouble.last_update
    found = [case.trouble.optimizer, last.optimizer() if last is not None else None]
    known = [o for o in found if isinstance(o, Optimizer) and _parameters(o)]
    return max(known, key=_times, default=None)


def _times(optimizer: Optimizer) -> float:
    sizes = [float(p.detach().abs().max()) / usual_size(p) for p in _parameters(optimizer) if p.numel()]
    return max((math.inf if math.isnan(s) else s for s in sizes), default=0.0)


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    every = [p for group in optimizer.param_groups for p in group["params"]]
    return [p for p in every if measurable(p)]


def _rate(optimizer: Optimizer) -> float:
    rates = [float(g.get("lr", 0.0)) for g in optimizer.param_groups]
    return max((r for r in rates if math.isfinite(r)), default=0.0)


def _tapes(case: Case) -> list[Tape]:
    """The last step that was good, then the bad one."""
    good = [t for t in reversed(case.trouble.earlier) if any(e.kind == "backward" for e in t.entries)]
    return [*good, case.tape]


def _train(case: Case, optimizer: Optimizer, tape: Tape, factor: float, steps: int) -> list[float]:
    """How large gradients and loss were, step by step; stops when they have risen, or are not finite."""
    sizes: list[float] = []
    with _on_copies(optimizer, tape) as copies:
        twin = _twin(optimizer, copies, factor)
        earlier = tuple(t for t in case.trouble.earlier if t.step < tape.step)
        for _ in range(steps + 1):
            if case.budget.spent:
                break
            size = _one_step(case, tape, earlier, copies, twin)
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
    with torch.no_grad():
        type(twin).step(twin)
    return math.sqrt(sum(float(g.double().square().sum()) for g in mine if not g.is_complex()))


@contextlib.contextmanager
def _on_copies(optimizer: Optimizer, tape: Tape) -> Iterator[list[tuple[torch.Tensor, torch.nn.Parameter]]]:
    """(parameter, copy of the usual size); the parameters have their own memory back afterwards."""
    trained = _parameters(optimizer)
    with usual_weights([*trained, *weights_on(tape)]):
        yield [(p, torch.nn.Parameter(p.detach().clone())) for p in trained]


def _twin(optimizer: Optimizer, copies: list[tuple[torch.Tensor, torch.nn.Parameter]], factor: float) -> Any:
    """An optimizer of the same kind over the copies, with nothing behind it."""
    by_id = {id(p): c for p, c in copies}
    twin: Any = object.__new__(type(optimizer))
    twin.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k not in ("step", "found_inf")})
    twin.__dict__.update({name: OrderedDict() for name in HOOKS})
    twin.state = defaultdict(dict)
    twin.param_groups = [
        {
            **group,
            "params": [by_id[id(p)] for p in group["params"] if id(p) in by_id],
            "lr": float(group.get("lr", 0.0)) * factor,
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
