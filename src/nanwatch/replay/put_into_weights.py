"""Infinities that an optimizer, or a hook after its step, writes into a weight on purpose: a score of -inf
for what may not be chosen. They are put there as they were written down. One that arithmetic has made, or
that comes out of what the optimizer keeps, is none of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nanwatch.replay.blame import is_written_down, looks_like_mask
from nanwatch.replay.multiplied import base_of
from nanwatch.replay.trace import Op, Operand, Trace

PUTS = frozenset(
    "fill full full_like new_full masked_fill index_fill index_put _index_put_impl scatter where copy "
    "masked_scatter slice_scatter select_scatter".split()
)
"""Ops that put a value in a place and compute none."""
HANDS_ON = PUTS | frozenset("clone _to_copy cat stack index select index_select gather tril triu".split())
POLES = frozenset("reciprocal div rsqrt log log2 log10 pow".split())
"""Ops that have an infinity for a result where the last thing they are given is 0."""


def is_put_there(trace: Trace, op: Op, weights: set[int], is_held: Callable[[int], bool]) -> bool:
    """Whether all that is infinite in what `op` has left in a weight was written down for it. `is_held`:
    memory that the optimizer keeps."""
    if any(o.numbers.nan for o in op.bad_outputs):
        return False
    path = trace.ancestors([op.index])
    if any(is_held(operand.key) for each in path for operand in each.bad_inputs):
        return False
    return all(each.phase != "optimizer" or _keeps_its_meaning(each, weights) for each in path)


def _keeps_its_meaning(op: Op, weights: set[int]) -> bool:
    if not op.bad_inputs or op.fresh is not None:
        return base_of(op) in PUTS and is_written_down(op)
    if op.is_view or base_of(op) in HANDS_ON:
        return True
    given = [o for o in op.bad_inputs if o.key not in weights]
    if given:
        return base_of(op) == "add" and all(map(_is_a_mask, given))
    return all(_was_there(operand, op.bad_inputs) for operand in op.bad_outputs)


def _is_a_mask(operand: Operand) -> bool:
    n = operand.numbers
    return looks_like_mask(n) and n.neginf < n.count and not n.posinf


def _was_there(made: Operand, given: Iterable[Operand]) -> bool:
    """A decayed weight is infinite where it was before."""
    n = made.numbers
    return any(n.posinf <= o.numbers.posinf and n.neginf <= o.numbers.neginf for o in given)


def is_exact(op: Op) -> bool:
    """1 / 0: no overflow, which would be another number in a wider dtype."""
    if base_of(op) not in POLES or not op.inputs:
        return False
    last = op.inputs[-1].numbers
    return last.min is not None and last.max is not None and last.min <= 0 <= last.max
