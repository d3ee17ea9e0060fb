"""A remedy tried on the birth op alone, with the operands it had: where the op is no part of what can be run
again, and what it made is all that counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nanwatch.explain.remedies.operands import Repair
from nanwatch.replay.op_facts import output_tensors
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

CLOSE = 1e-2
"""How far, relatively, a repaired value may lie from one that was fine: it may be of a coarser dtype."""


def holds_alone(case: Case, repair: Repair) -> bool | None:
    """Whether the repaired call gives finite values, and the same where they were finite; None when the
    operands were not kept."""
    op = case.located.op
    if op is None or op.call is None or op.output is None or repair.call is None:
        return None
    function, args, kwargs = op.call
    with torch.no_grad():
        made = list(output_tensors(repair.call(function)(*args, **kwargs)))
    if len(made) != 1 or made[0].shape != op.output.shape or not measurable(made[0]):
        return None
    was = op.output.detach().double()
    fine = torch.isfinite(was)
    same = torch.allclose(made[0].double()[fine], was[fine], rtol=CLOSE, atol=0.0)
    return bool(is_finite(made[0])) and same


def is_all_that_counts(case: Case) -> bool:
    """Whether what the birth op made is what was saved."""
    if case.trouble.seen_in != "checkpoint" or case.birth is None:
        return False
    made = case.birth.op.output
    return made is not None and any(_same(made, tensor) for _, tensor in case.trouble.sinks)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return False
    return torch.equal(torch.nan_to_num(a.detach()), torch.nan_to_num(b.detach()))
