"""The step once more, with the operand that was zero kept away from it by an eps that its dtype can hold."""

from __future__ import annotations

from typing import Any

import torch

from nanwatch.explain.at_birth import finite_where_it_matters, with_operands
from nanwatch.explain.birth import FLOAT8
from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.mechanism import DIVIDE_BY_ZERO, LOG_OF_ZERO
from nanwatch.explain.text import Text

NAME = "larger-eps"
TITLE = Text("running the step with a larger eps", "用更大的 eps 重新运行这一步")
NOTHING = 1e-30
FINITE = Text("finite when {operand} is at least {eps:g}", "当 {operand} 不小于 {eps:g} 时结果有限")
FAILS = Text("fails when {operand} is at least {eps:g} too", "当 {operand} 不小于 {eps:g} 时也失败")


def applies(case: Case) -> bool:
    zero = case.mechanism.kind in (DIVIDE_BY_ZERO, LOG_OF_ZERO) and case.mechanism.value == 0
    return (zero or _has_no_eps(case)) and case.phase in ("forward", "loss", "backward")


def run(case: Case) -> Outcome:
    operand = case.mechanism.operand
    given = None if case.birth is None else case.birth.tensor(operand)
    eps = eps_for(torch.float32 if given is None else given.dtype)

    def change(name: str, value: Any) -> Any:
        if name == "eps" and isinstance(value, float):
            return max(value, eps)
        if name == operand and isinstance(value, (int, float)):
            return eps if value == 0 else value
        if name != operand or not isinstance(value, torch.Tensor) or value.is_complex():
            return value
        floor = torch.where(value < 0, -eps, eps).to(value.dtype)
        return torch.where(value.abs() < eps, floor, value)

    again = with_operands(case, change)
    finite = None if again is None else finite_where_it_matters(case, again)
    if finite is None:
        return Outcome(None, "")
    return Outcome(finite, (FINITE if finite else FAILS).say(operand=operand, eps=eps), eps)


def _has_no_eps(case: Case) -> bool:
    """A norm that was told to use an eps of 0."""
    eps = None if case.birth is None else case.birth.number("eps")
    return eps is not None and eps < NOTHING


def eps_for(dtype: torch.dtype) -> float:
    """Small, and neither lost in the dtype nor is its inverse beyond it."""
    if dtype in FLOAT8:
        return 0.125
    return {torch.float16: 1e-3, torch.bfloat16: 1e-6, torch.float64: 1e-12}.get(dtype, 1e-6)
