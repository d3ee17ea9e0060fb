"""What a program gives its steps more of by a schedule: longer sequences, larger batches, a term of the loss
whose weight rises. A loss that grows with these does not diverge."""

from __future__ import annotations

from collections.abc import Hashable

from nanwatch.watching.tape import Tape, tensors_of_call

MULTIPLIES = frozenset("mul mul_ multiply __mul__ __rmul__ __imul__".split())


def given_to_a_step(tape: Tape) -> dict[Hashable, float]:
    """How many values its models were given, and, for each place, the number up to 1 that something is
    multiplied with there. (A number that follows a loss which diverges does not stay below 1.)"""
    found: dict[Hashable, float] = {}
    for entry in tape.entries:
        if entry.kind == "module":
            size = sum(t.numel() for t in tensors_of_call(entry.args, entry.kwargs))
            found["size"] = found.get("size", 0.0) + size
        elif entry.stack and getattr(entry.call, "__name__", "") in MULTIPLIES:
            factors = [value for value in entry.args if isinstance(value, float) and 0 < value <= 1]
            found.update((entry.stack[0], factor) for factor in factors)
    return found
