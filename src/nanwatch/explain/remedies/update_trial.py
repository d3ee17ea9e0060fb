"""A source edit in the program's own optimizer, tried on the update that failed: made once more on copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nanwatch.explain.remedies.operands import Repair
from nanwatch.explain.remedies.source_edit import edited
from nanwatch.explain.state import optimizer_of
from nanwatch.explain.twin import updated
from nanwatch.tensors import is_finite

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

CLOSE = 1e-3
"""How far, relatively, a parameter may lie from where an update that was fine took it."""


def update_holds(case: Case, repair: Repair) -> bool | None:
    """Whether the update fails on copies as it is, is finite with the edit, and does the same where it was
    fine; None when that cannot be said. The state is tried as it is now, and, since the failed update may
    have spoiled it, as it was at first."""
    optimizer = optimizer_of(case)
    if optimizer is None:
        return None
    for keep_state in (True, False):
        before = updated(optimizer, keep_state)
        if before is None or all(is_finite(p) for p in before):
            continue
        with edited(repair.expression, repair.source) as in_function:
            after = updated(optimizer, keep_state) if in_function else None
        if after is not None:
            return all(is_finite(p) for p in after) and _same_where_it_was_fine(before, after)
    return None


def _same_where_it_was_fine(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    return all(
        torch.allclose(was[was.isfinite()], now[was.isfinite()], rtol=CLOSE, atol=CLOSE)
        for was, now in zip(before, after, strict=True)
    )
