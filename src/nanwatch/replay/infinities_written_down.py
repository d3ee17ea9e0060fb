"""An infinity that the program wrote down before the step, a distance for what is out of reach, is there on
purpose though it looks like no mask. The live trace sees it written; a replay finds it in its input."""

from __future__ import annotations

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
