"""An index that was NaN or infinite before it was an integer. What a conversion makes of such a value is far
outside every table, and torch refuses it; but the index is not to blame, the value is."""

from __future__ import annotations

from nanwatch.replay.multiplied import base_of
from nanwatch.replay.op_facts import CASTS
from nanwatch.replay.out_of_range import OutOfRange
from nanwatch.replay.tracer import OpTracer

HUGE = 2**30
"""No table has as many rows: a conversion of NaN gives the smallest integer of its dtype, or the largest."""


def cast_behind(found: OutOfRange, tracer: OpTracer) -> list[int]:
    """The ops that made what was converted; none if the index was one from the beginning."""
    if abs(found.outside.index) < HUGE:
        return []
    casts = [
        op
        for op in tracer.trace.ops.values()
        if op.step == tracer.step and op.hides and (base_of(op) in CASTS or base_of(op) == "copy")
        if any("int" in made.numbers.dtype for made in op.outputs)
    ]
    return [o.source for o in casts[-1].bad_inputs if o.source is not None] if casts else []
