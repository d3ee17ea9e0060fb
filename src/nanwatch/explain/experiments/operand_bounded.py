"""The step once more, with the operands of the op that overflowed bounded."""

from __future__ import annotations

import math
from typing import Any

import torch

from nanwatch.explain.at_birth import Change, finite_where_it_matters, with_operands
from nanwatch.explain.birth import NARROW, BirthOp
from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.mechanism import CONSTANTS, DIVISIONS, OVERFLOW, dims_of
from nanwatch.explain.text import Text
from nanwatch.replay.blame import silent_damage

NAME = "operand-bounded"
TITLE = Text("running the step with the operand bounded", "限制该运算数的大小后重新运行这一步")
FINITE = Text("finite with every operand within ±{bound:.3g}", "把运算数限制在 ±{bound:.3g} 以内，结果有限")
FAILS = Text("fails with every operand within ±{bound:.3g} too", "把运算数限制在 ±{bound:.3g} 以内也失败")

EXPONENTIALS = ("exp", "expm1", "exp2", "sinh", "cosh")
PRODUCTS = ("prod", "cumprod")
MOST_ROOTS = 3
SAFE_SHARE = 0.125
"""Of the range of the dtype, in powers of ten: what is left is room for what follows."""


def applies(case: Case) -> bool:
    return case.mechanism.kind == OVERFLOW and case.phase in ("forward", "loss", "backward")


def run(case: Case) -> Outcome:
    birth = case.birth
    if birth is None:
        return Outcome(None, "")
    bound = bound_of(birth.name, birth.dtype or torch.float32, birth.number("exponent") or _factors(birth))
    for _ in range(MOST_ROOTS):  # nobody knows how fast each function grows
        made = birth.again(_within(birth, bound))
        if made is None or all(bool(torch.isfinite(t).all()) for t in made):
            break
        bound = bound**0.5
    again = with_operands(case, _within(birth, bound))
    finite = None if again is None else finite_where_it_matters(case, again)
    if finite and again is not None and case.trouble.seen_in == "trace":
        finite = not silent_damage(again.tracer.trace, again.tracer.step)
    if finite is None:
        return Outcome(None, "")
    return Outcome(finite, (FINITE if finite else FAILS).say(bound=bound), bound)


def _within(birth: BirthOp, bound: float) -> Change:
    divisor = DIVISIONS.get(birth.name, "")

    def change(name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return max(-bound, min(bound, value)) if name in CONSTANTS and number else value
        if name == divisor:
            return torch.where(value.abs() < 1 / bound, _signed(value, 1 / bound), value)
        if value.is_complex() or name == "exponent":
            return value
        if not bool((value.abs() > bound).any()):
            return value
        return value.clamp(-bound, bound)

    return change


def _signed(value: torch.Tensor, size: float) -> torch.Tensor:
    return torch.where(value < 0, -size, size).to(value.dtype)


def _factors(birth: BirthOp) -> float | None:
    """How many values a product is made of."""
    given = birth.tensor("self")
    if given is None or birth.name not in PRODUCTS:
        return None
    sizes = [given.shape[d] for d in dims_of(birth.arguments.get("dim"), given.dim())]
    return float(math.prod(sizes))


def bound_of(name: str, dtype: torch.dtype, power: float | None = None) -> float:
    """How large an operand of this op may be, so that what it makes is far from the limit of the dtype."""
    largest = torch.finfo(dtype if dtype.is_floating_point else torch.float32).max
    if name in EXPONENTIALS:
        return math.log(largest) * SAFE_SHARE
    if name in ("pow", *PRODUCTS) and power is not None and power > 1:
        return float(largest ** (2 * SAFE_SHARE / power))
    if dtype in NARROW and largest < 1e6:
        return float(largest**0.5) / 4
    return float(largest**SAFE_SHARE)
