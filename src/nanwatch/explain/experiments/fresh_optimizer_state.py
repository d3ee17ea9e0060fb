"""The update made again, as if the optimizer had no state yet."""

from __future__ import annotations

from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.state import optimizer_of
from nanwatch.explain.text import Text
from nanwatch.explain.twin import update_of

NAME = "fresh-optimizer-state"
TITLE = Text("making the update again with fresh optimizer state", "用全新的优化器状态重做这次更新")
FINITE = Text(
    "with the state it has the update gives non-finite weights, with fresh state finite ones",
    "用现有状态更新得到非有限的权重，用全新状态则得到有限的权重",
)
STILL = Text("with fresh state the update still gives non-finite weights", "用全新状态更新仍得到非有限的权重")
NO_MATTER = Text(
    "with or without its state the update gives finite weights", "无论有无状态，更新都得到有限的权重"
)


def applies(case: Case) -> bool:
    optimizer = optimizer_of(case)
    return case.phase in ("optimizer", "weights") and optimizer is not None and bool(optimizer.state)


def run(case: Case) -> Outcome:
    """`finite`: with fresh state; None when the state makes no difference."""
    optimizer = optimizer_of(case)
    fresh, kept = update_of(optimizer, False), update_of(optimizer, True)
    if fresh is None:
        return Outcome(None, "")
    if not fresh:
        return Outcome(False, STILL.say())
    return Outcome(None, NO_MATTER.say()) if kept else Outcome(True, FINITE.say())
