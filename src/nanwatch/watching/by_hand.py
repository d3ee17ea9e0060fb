"""A program may have an optimizer that holds its weights, and update them by hand all the same: it has
written into them after a derivative, time and again, and no optimizer was ever stepped."""

from __future__ import annotations

import torch

from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, Tape, tensors_in
from nanwatch.watching.torch_functions import changes_its_input, written_to
from nanwatch.watching.within_bounds import ends_a_part


def last_derivative(tape: Tape) -> int | None:
    """Its place."""
    places = range(len(tape.entries) - 1, -1, -1)
    return next((place for place in places if ends_a_part(tape.entries[place])), None)


def written_by_the_program(weights: list[torch.Tensor], tape: Tape, since: int) -> list[torch.Tensor]:
    """Those of them that it has written into since this place."""
    written = {key_of(tensor) for entry in tape.entries[since:] for tensor in _written_by(entry)}
    sets = {id(tensor) for after, tensor, _, _ in tape.data_set if after > since}
    if not written and not sets:
        return []
    return [weight for weight in weights if id(weight) in sets or key_of(weight) in written]


def derivatives_on(tape: Tape) -> list[Entry]:
    """The calls of `torch.autograd.grad`."""
    return [e for e in tape.entries if e.kind == "op" and getattr(e.call, "__name__", "") == "grad"]


def _written_by(entry: Entry) -> list[torch.Tensor]:
    if entry.kind != "write" and not changes_its_input(entry.call, entry.kwargs):
        return []
    return tensors_in(written_to(entry.args, entry.kwargs))
