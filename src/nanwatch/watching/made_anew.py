"""Averages of the weights that a program makes anew in each step: `ema = {k: 0.9 * ema[k] + 0.1 * v ...}`.

Nothing is written in place, so there is nothing to undo; but the new average can be given the values of the
one before. What is such an average is known for sure: a line made it out of a weight and of what the same
line had made one step earlier.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, Tape, given_to, version_of

Pair = tuple[torch.Tensor, torch.Tensor]


def carried_on(now: Tape, earlier: Tape, weights: set[int]) -> Iterator[Pair]:
    """(what was made anew on the tape `now`, what it was one step before). `weights`: by their memory."""
    made_then = {id(t): (entry, version) for entry in _ops(earlier) for t, version in entry.made}
    stems_from: dict[int, dict[int, torch.Tensor]] = {}
    """id of a tensor on the tape -> what it was made of: tensors of the step before."""
    of_weights: set[int] = set()
    """ids of tensors on the tape that a weight went into."""
    for entry in _ops(now):
        given = given_to(entry)
        stems = {id(t): t for t in given if id(t) in made_then}
        for t in given:
            stems.update(stems_from.get(id(t), {}))
        weighted = any(id(t) in of_weights or key_of(t) in weights for t in given)
        for made, _ in entry.made:
            stems_from[id(made)] = stems
            if weighted:
                of_weights.add(id(made))
                yield from ((made, t) for t in stems.values() if _same_line(entry, made, t, made_then[id(t)]))


def _ops(tape: Tape) -> Iterator[Entry]:
    return (entry for entry in tape.entries if entry.kind == "op")


def _same_line(entry: Entry, made: torch.Tensor, before: torch.Tensor, then: tuple[Entry, int]) -> bool:
    """Whether the one before came of the same call, and still holds what it held."""
    alike = made.shape == before.shape and made.dtype == before.dtype
    same = then[0].call == entry.call and then[0].stack == entry.stack
    return alike and same and version_of(before) == then[1]
