"""An infinity that the program wrote down before the step, a distance for what is out of reach, is there on
purpose though it looks like no mask. The live trace sees it written; a replay finds it in its input."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from nanwatch.replay.blame import Blame
from nanwatch.replay.multiplied import bad_factors, base_of, multiplied
from nanwatch.replay.roles import Roles, written_down
from nanwatch.replay.trace import Op, Operand, Trace
from nanwatch.watching.trouble import Trouble

TAKES_FOR_NOTHING = frozenset("logsumexp _logcumsumexp logaddexp _softmax softmax exp amax max".split())
"""Ops to which -inf is a score that counts for nothing."""


def forgive_what_is_written_down(trace: Trace, roles: Roles) -> None:
    """Such operands count as numbers of the program's text; unless they are data that is multiplied and added
    up, or a weight."""
    infinite = [op for op in trace.ops.values() if _is_given_infinities(op)]
    data = multiplied(infinite)
    for op in infinite:
        for operand in op.bad_inputs if op.index not in data else ():
            if operand.source is None and not operand.numbers.nan and not roles.weight(operand.key):
                origin = roles.origin(operand.key)
                operand.from_python |= origin is not None and not origin.makes_nan and written_down(origin)


def forgive_masks_in_weights(trace: Trace, roles: Roles, trouble: Trouble) -> None:
    """A table of a model may forbid with -inf: scores of transitions, a prior. It did so from the first call
    on, updates were made since, and in this very step the infinities go where -inf stands for nothing."""
    record = trouble.fingerprints
    if record is None or trouble.last_update is None:
        return
    for key in {o.key for op in trace.ops.values() for o in op.bad_inputs if _may_forbid(o)}:
        weight = roles.weight(key)
        if weight is not None and weight.name in record.bad_at_first and _is_taken_for_nothing(trace, key):
            for op in trace.ops.values():
                for operand in op.bad_inputs:
                    operand.is_a_mask |= operand.key == key and _may_forbid(operand)


@contextlib.contextmanager
def forbidden_in_outputs(trace: Trace, roles: Roles, trouble: Trouble) -> Iterator[None]:
    """What a model may not choose has a bias of -inf, and so has the score that it returns. No update has
    made it: none was made, or the weight was so from the first call on."""
    ops = trace.ops.values() if trouble.seen_in == "output" else ()
    factors = {id(operand) for op in ops for operand in bad_factors(op)}
    added = [o for op in ops for o in op.bad_inputs if id(o) not in factors and not o.is_a_mask]
    masks = [operand for operand in added if _is_forbidden(operand, roles, trouble)]
    for operand in masks:
        operand.is_a_mask = True
    try:
        yield
    finally:
        for operand in masks:  # a live trace goes on
            operand.is_a_mask = False


def _is_forbidden(operand: Operand, roles: Roles, trouble: Trouble) -> bool:
    weight = roles.weight(operand.key) if _forbids(operand) else None
    if weight is None or trouble.last_update is None:
        return weight is not None
    return trouble.fingerprints is not None and weight.name in trouble.fingerprints.bad_at_first


def _forbids(operand: Operand) -> bool:
    n = operand.numbers
    return not n.nan and not n.posinf and 0 < n.neginf < n.count


def _may_forbid(operand: Operand) -> bool:
    """Infinities of one sign beside finite values, from outside of the trace."""
    return operand.source is None and _forbids(operand)


def _is_taken_for_nothing(trace: Trace, key: int) -> bool:
    """Whether they are added to scores and leave a softmax or a sum of exponentials finite. Not where they
    are multiplied."""
    reached: set[int | None] = set()
    hidden = False
    for op in trace.ops.values():
        given = [o for o in op.bad_inputs if o.source in reached or (o.source is None and o.key == key)]
        if {id(o) for o in given} & {id(o) for o in bad_factors(op)}:
            return False
        if given:
            reached.add(op.index)
            hidden = hidden or (not op.bad_outputs and base_of(op) in TAKES_FOR_NOTHING)
    return hidden


def _is_given_infinities(op: Op) -> bool:
    return any(o.numbers.posinf or o.numbers.neginf for o in op.bad_inputs)


def unwanted_infinity(blame: Blame, trace: Trace, roles: Roles) -> tuple[Op, int] | None:
    """Of an op that turned an infinity into NaN: the op of the program's own code, outside the trace, that
    made what looked like a mask out of finite values, and the memory it went to. Nobody asked for that."""
    if blame.outside is not None or not blame.op.turns_inf_into_nan:
        return None
    for op in trace.ancestors([blame.op.index]):
        for operand in op.bad_inputs:
            if operand.source is None and not operand.from_python:
                origin = roles.origin(operand.key)
                if origin is not None and origin.makes_inf and not written_down(origin):
                    return origin, operand.key
    return None
