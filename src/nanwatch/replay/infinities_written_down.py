"""An infinity that the program wrote down before the step, a distance for what is out of reach, is there on
purpose though it looks like no mask. The live trace sees it written; a replay finds it in its input."""

from __future__ import annotations

from nanwatch.replay.blame import Blame
from nanwatch.replay.multiplied import multiplied
from nanwatch.replay.roles import Roles, written_down
from nanwatch.replay.trace import Op, Trace


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
