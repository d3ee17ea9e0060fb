"""Weights that a program tries out without any derivative: a random search, an evolution. It computes a score
of what its model returns, and sets other weights; a candidate whose score is NaN wins nothing."""

from __future__ import annotations

from typing import Any

from torch import nn

from nanwatch.tensors import is_finite
from nanwatch.watching.left_unread import since
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, Tape, given_to, tensors_in
from nanwatch.watching.torch_functions import changes_its_input, written_to


def gets_other_weights(call: Entry, tape: Tape, given: Any) -> bool:
    """Whether the program has since set the weights of this call's model to other values, finite ones.
    `given`: those that `functional_call` is about to give it."""
    if given is not None and given is not call.swapped:
        return all(map(is_finite, tensors_in(given)))
    weights = list(call.call.parameters()) if isinstance(call.call, nn.Module) else []
    keys = set(map(key_of, weights))
    written = any(
        key_of(t) in keys
        for entry in since(call, tape)
        if entry.kind == "write" or changes_its_input(entry.call, entry.kwargs)
        for t in tensors_in(written_to(entry.args, entry.kwargs))
    )
    position = tape.entries.index(call) if call in tape.entries else 0
    replaced = any(tape.sets.get(id(weight), 0) > position for weight in weights)
    return (written or replaced) and all(map(is_finite, weights))


def has_a_score(call: Entry, tape: Tape) -> bool:
    """Whether one number was computed of what the call returned."""
    made = {id(tensor) for tensor, _ in call.made}
    for entry in since(call, tape):
        if any(id(t) in made for t in given_to(entry)):
            if any(t.numel() == 1 for t, _ in entry.made):
                return True
            made.update(id(tensor) for tensor, _ in entry.made)
    return False
