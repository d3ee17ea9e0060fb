"""The step once more, with numbers of the program's text that the dtype cannot hold replaced by ones it can.

`scores[hidden] = -1e9` on float16 writes -inf, and no op ever sees the -1e9. A function mode sees the call as
the program wrote it. What was computed before the model was called is not run again: there the calls on the
tape are looked at, and what they made is bounded.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from nanwatch.explain.at_birth import finite_where_it_matters
from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes
from nanwatch.tensors import is_finite
from nanwatch.watching.stack import take_stack, user_frame
from nanwatch.watching.tape import Entry, tensors_in

NAME = "fill-values"
TITLE = Text("running the step with constants the dtype can hold", "把常数换成该类型能表示的值后重新运行")
FINITE = Text("finite with {value:g} for {constant:g}", "用 {value:g} 代替 {constant:g}，结果有限")
FAILS = Text("fails with {value:g} for {constant:g} too", "用 {value:g} 代替 {constant:g} 也失败")

WRITES = frozenset(
    "__setitem__ tensor where full full_like new_full new_tensor masked_fill masked_fill_ fill_ "
    "scalar_tensor index_fill index_fill_ as_tensor masked_scatter constant_pad_nd pad".split()
)
"""Functions that put a number into a tensor as it is."""
SCALES = frozenset(
    "mul mul_ multiply __mul__ __rmul__ __imul__ div __truediv__ add sub __add__ __radd__ __sub__".split()
)
"""Functions that do arithmetic with it: a mask when the tensor has two values only."""


@dataclass(frozen=True)
class Lost:
    """A finite number of the program's text that became infinite in a dtype."""

    constant: float
    dtype: torch.dtype
    line: int | None
    code: str


def applies(case: Case) -> bool:
    return bool(case.tape.entries) and case.phase not in ("weights", "optimizer")


def run(case: Case) -> Outcome:
    """`value`: the first number that was lost, or None."""
    before = {id(t): entry for entry in case.tape.entries for t in _made(entry)}
    noted = [(entry, lost) for entry in case.tape.entries if (lost := _lost_in(entry)) is not None]
    bounded = {id(t) for entry, _ in noted for t in _made(entry)}

    def outside(tensor: torch.Tensor) -> torch.Tensor:
        known = id(tensor) in bounded and id(tensor) in before
        return _bounded(tensor) if known else tensor

    modes: list[Representable] = []

    def around() -> Representable:
        modes.append(Representable())
        return modes[-1]

    again = case.rerun(Changes(around=around, outside=outside if bounded else None))
    found = [lost for _, lost in noted] + [lost for mode in modes for lost in mode.lost]
    finite = finite_where_it_matters(case, again)
    if not found or finite is None:
        return Outcome(None, "")
    first = found[0]
    said = (FINITE if finite else FAILS).say(value=held(first.constant, first.dtype), constant=first.constant)
    return Outcome(finite, said, first)


def held(constant: float, dtype: torch.dtype) -> float:
    """A number of the same sign that the dtype can hold, with room for a score to be added."""
    return math.copysign(torch.finfo(dtype).max / 2, constant)


def _made(entry: Entry) -> list[torch.Tensor]:
    given = entry.args[:1] if getattr(entry.call, "__name__", "") == "__setitem__" else ()
    return [*tensors_in(entry.outputs), *tensors_in(given)]


def _lost_in(entry: Entry) -> Lost | None:
    if entry.kind not in ("op", "write"):
        return None
    made = _made(entry)
    frame = user_frame(entry.stack)
    constant = lost_constant(getattr(entry.call, "__name__", ""), entry.args, entry.kwargs, made)
    if constant is None:
        return None
    return Lost(constant, made[0].dtype, frame.line if frame else None, frame.code if frame else "")


def lost_constant(name: str, args: Any, kwargs: Any, made: list[torch.Tensor]) -> float | None:
    """The finite number among the arguments that became infinite in what the call made."""
    if name not in WRITES and name not in SCALES:
        return None
    made = [t for t in made if t.is_floating_point()]
    if not made or is_finite(made[0]):
        return None
    largest = torch.finfo(made[0].dtype).max
    given = [*args, *kwargs.values()]
    beyond = [c for c in _numbers(given) if math.isfinite(c) and abs(c) > largest]
    return beyond[0] if beyond and (name in WRITES or _two_values(given)) else None


def _numbers(values: Any, depth: int = 3) -> list[float]:
    found: list[float] = []
    for value in values:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append(_float(value))
        elif isinstance(value, (list, tuple)) and depth and len(value) <= 10_000:
            found += _numbers(value, depth - 1)
    return found


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _two_values(values: Any) -> bool:
    tensors = [t for t in values if isinstance(t, torch.Tensor)]
    return len(tensors) == 1 and tensors[0].numel() >= 1 and len(torch.unique(tensors[0].detach())) <= 2


def _bounded(tensor: torch.Tensor) -> torch.Tensor:
    limit = torch.finfo(tensor.dtype).max / 2
    return torch.nan_to_num(tensor.detach(), nan=0.0, posinf=limit, neginf=-limit)


class Representable(TorchFunctionMode):
    """Where a call loses a number, it is made again with one that the dtype can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: list[Lost] = []

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name not in WRITES and name not in SCALES:
            return function(*args, **kwargs)
        made = function(*args, **kwargs)
        results = tensors_in(args[0]) if name in ("__setitem__", "fill_") else tensors_in(made)
        constant = lost_constant(name, args, kwargs, results)
        if constant is None:
            return made
        frame = user_frame(take_stack(sys._getframe(1)))
        dtype = results[0].dtype
        self.lost.append(Lost(constant, dtype, frame.line if frame else None, frame.code if frame else ""))
        args = _replaced(args, constant, held(constant, dtype))
        return function(*args, **_replaced(kwargs, constant, held(constant, dtype)))


def _replaced(value: Any, constant: float, other: float) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return other if _float(value) == constant else value
    if isinstance(value, dict):
        return {name: _replaced(v, constant, other) for name, v in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple) and len(value) <= 10_000:
        return type(value)(_replaced(v, constant, other) for v in value)
    return value
