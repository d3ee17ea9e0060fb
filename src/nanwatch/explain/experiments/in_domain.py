"""The step once more, with the operand of the birth op brought into the domain of the function. Also where
the line is a library's, which no edit of the program's source can reach."""

from __future__ import annotations

from typing import Any

import torch

from nanwatch.explain.at_birth import finite_where_it_matters, with_operands
from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.mechanism import INVALID_DOMAIN, WITHIN_ONE
from nanwatch.explain.text import Text

NAME = "in-domain"
TITLE = Text("running the step with the operand in the domain", "把操作数限制在定义域内，重新运行这一步")
FINITE = Text("finite with the operand of {op} in its domain", "把 {op} 的操作数限制在定义域内，结果有限")
FAILS = Text("fails too with the operand of {op} in its domain", "把 {op} 的操作数限制在定义域内也失败")
EDGE = 1e-6


def applies(case: Case) -> bool:
    return case.mechanism.kind == INVALID_DOMAIN and case.phase in ("forward", "loss")


def run(case: Case) -> Outcome:
    birth, operand = case.birth, case.mechanism.operand
    if birth is None:
        return Outcome(None, "")

    def change(name: str, value: Any) -> Any:
        plain = isinstance(value, torch.Tensor) and value.is_floating_point()
        return within(birth.name, value) if plain and name == operand else value

    again = with_operands(case, change)
    finite = None if again is None else finite_where_it_matters(case, again)
    if finite is None:
        return Outcome(None, "")
    return Outcome(finite, (FINITE if finite else FAILS).say(op=birth.name))


def within(function: str, value: torch.Tensor) -> torch.Tensor:
    """The nearest values, or for a power the same without their sign, of which the function has one."""
    if function == "pow":
        return value.abs()
    if function in WITHIN_ONE:
        return value.clamp(-1 + EDGE, 1 - EDGE)
    return value.clamp_min(1 + EDGE if function == "acosh" else EDGE)
