"""Which calls a replay has to make: those of the tape, and those of earlier ones that its graph hangs on."""

from __future__ import annotations

import torch

from nanwatch.watching.tape import Entry, Tape, given_to, made_inside, tensors_in


def needed_entries(tape: Tape, earlier: tuple[Tape, ...]) -> list[Entry]:
    """The tape, and from earlier ones what its graph still hangs on (a GAN's generator output)."""
    entries = list(tape.entries)
    for older in reversed(earlier):
        wanted = {
            id(t): t for entry in entries if differentiates(entry) for t in given_to(entry) if has_history(t)
        }
        kept = []
        for entry in reversed(older.entries):
            if entry.kind != "backward" and _makes_one_of(wanted, entry):
                kept.append(entry)
                wanted |= {id(t): t for t in given_to(entry) if has_history(t)}
        entries = kept[::-1] + entries
    return entries


def _makes_one_of(wanted: dict[int, torch.Tensor], entry: Entry) -> bool:
    if any(id(t) in wanted for t in tensors_in(entry.outputs)):
        return True
    return any(made_inside(entry, tensor) for tensor in wanted.values())


def differentiates(entry: Entry) -> bool:
    """Whether autograd follows this call: else (a loss that is noted down after its step) the value that is
    on record will do."""
    if entry.kind != "op" or entry.functional:
        return True
    return entry.context.grad and any(has_history(t) for t in tensors_in(entry.outputs))


def has_history(tensor: torch.Tensor) -> bool:
    """Whether autograd knows how the tensor came about."""
    try:
        return tensor.requires_grad and tensor.grad_fn is not None
    except RuntimeError:  # a view whose base was changed in place without autograd
        return False
