"""A first update with fresh memory filled: with NaN, then with zeros."""

from __future__ import annotations

from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.instead import Filled
from nanwatch.explain.state import optimizer_of
from nanwatch.explain.text import Text
from nanwatch.explain.twin import update_of

NAME = "poisoned-update"
TITLE = Text("making a first update with fresh memory filled", "填充新内存后做一次首次更新")
READ = Text(
    "the optimizer reads memory that it allocates and never writes",
    "优化器读取了自己分配却从未写入的内存",
)
NOT_READ = Text("the optimizer writes all memory before it reads it", "优化器在读取前都先写好了内存")


def applies(case: Case) -> bool:
    return case.phase in ("weights", "optimizer") and optimizer_of(case) is not None


def run(case: Case) -> Outcome:
    """`value`: whether memory is read that nobody wrote."""
    optimizer = optimizer_of(case)
    zeros = update_of(optimizer, False, Filled(0.0))
    poisoned = update_of(optimizer, False, Filled(float("nan"))) if zeros else None
    if zeros is None or poisoned is None:
        return Outcome(None, "")
    return Outcome(None, (NOT_READ if poisoned else READ).say(), not poisoned)
