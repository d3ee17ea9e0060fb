"""A remedy tried on the step that failed: finite afterwards, and nothing changed where all was well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from nanwatch.explain.remedies.op_alone import holds_alone, is_all_that_counts
from nanwatch.explain.remedies.operands import Repair
from nanwatch.explain.remedies.places import user_place
from nanwatch.explain.remedies.prepared import prepared_holds
from nanwatch.explain.remedies.source_edit import diff_of, edited
from nanwatch.explain.remedies.update_trial import update_holds
from nanwatch.explain.still_there import still_there
from nanwatch.replay.again import Again, Changes
from nanwatch.replay.samples import batch_size
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite
from nanwatch.watching.tape import Entry, tensors_in

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

CLOSE_LOSS = 0.05
CLOSE = 1e-3
"""How far, relatively, a repaired value may lie from the one that was fine before."""


@dataclass(frozen=True)
class Trial:
    verified: bool | None
    edit: str | None = None


def tried(case: Case, repair: Repair) -> Trial:
    """Run the step with the edited function, or, for code at the top of a script, with the edited call."""
    from nanwatch.explain.case import OutOfTime

    diff = diff_of(repair.expression, repair.source)
    if case.trouble.seen_in == "checkpoint":  # which is no part of what is run again
        return Trial(holds_alone(case, repair) if is_all_that_counts(case) else None, diff)
    try:
        if case.phase == "optimizer":
            return Trial(update_holds(case, repair), diff)
        if case.phase in ("data", "weights") and not _runs_in_a_module(case):
            return Trial(prepared_holds(case, repair), diff)
        with edited(repair.expression, repair.source) as in_function:
            inside = in_function and _runs_in_a_module(case)
            changes = Changes(call=None if inside else _call_of(repair), repaired=True)
            if not inside and changes.call is None:
                return Trial(None, diff)
            again = case.rerun(changes)
    except (SyntaxError, ValueError):
        return Trial(None, None)
    except OutOfTime:
        return Trial(None, diff)
    return Trial(holds(case, again), diff)


def holds(case: Case, again: Again) -> bool | None:
    """Whether the step is finite now, the op too, and the rows that were fine are what they were."""
    from nanwatch.explain.case import runs_finite

    finite = runs_finite(again)
    if finite is None or not finite:
        return finite
    same = _same_where_it_was_fine(case, again) and _same_loss(case, again)
    return same and not still_there(case, again)


def _same_loss(case: Case, again: Again) -> bool:
    """Where only the gradients were bad, the loss was what it should be, but for a value at a singular
    point."""
    if case.trouble.seen_in != "gradients" or "scale" in case.events:
        return True
    calls = [e for e in case.tape.entries if e.kind == "backward"]
    recorded = [t for e in calls for t in tensors_in(e.args[:1] or e.kwargs.get("tensors"))]
    if len(recorded) != len(again.losses):
        return True
    pairs = zip(recorded, again.losses, strict=True)
    return all(
        was.shape != now.shape
        or torch.allclose(was.detach().double(), now.detach().double(), rtol=CLOSE_LOSS, atol=CLOSE)
        for was, now in pairs
        if is_finite(was)
    )


def _same_where_it_was_fine(case: Case, again: Again) -> bool:
    """The outputs of the models, row by row, against what the program got."""
    size = batch_size(case.tape)
    recorded = [t for entry in case.model_calls[-1:] for t, _ in entry.made if measurable(t)]
    if len(recorded) != len([t for t in again.outputs if measurable(t)]):
        return True
    for was, now in zip(recorded, (t for t in again.outputs if measurable(t)), strict=True):
        if was.shape != now.shape or was.dim() == 0 or was.shape[0] != size:
            continue
        fine = torch.isfinite(was.detach()).reshape(size, -1).all(1)
        before, after = was.detach()[fine].double(), now.detach()[fine].double()
        if before.numel() and not torch.allclose(
            before, after, rtol=CLOSE, atol=CLOSE * float(before.abs().max())
        ):
            return False
    return True


def _runs_in_a_module(case: Case) -> bool:
    return case.located.op is not None and bool(case.located.op.modules)


def _call_of(repair: Repair) -> Any:
    """The recorded call at the repaired place, changed; others as they are."""
    change = repair.call
    if change is None:
        return None
    place = (repair.expression.code, repair.expression.lasti)

    def call(entry: Entry) -> Any:
        return change(entry.call) if user_place(entry.stack) == place else entry.call

    return call
