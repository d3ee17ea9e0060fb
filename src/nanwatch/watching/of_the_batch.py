"""Which calls since the last update were made for the batch at hand: a program validates, measures and
collects data between two updates, too."""

from __future__ import annotations

from torch import Tensor

from nanwatch.watching.tape import Entry, Tape, given_to, tensors_in
from nanwatch.watching.torch_functions import written_to


def of_the_batch(tape: Tape) -> list[Entry]:
    """From the first call on that something was differentiated by; all of them where nothing was."""
    entries = tape.entries
    ends = [i for i, entry in enumerate(entries) if _differentiates(entry)]
    wanted = {id(t) for i in ends for t in given_to(entries[i])}
    first = ends[0] if ends else 0
    for index in range(ends[-1] if ends else -1, -1, -1):
        entry = entries[index]
        if any(id(t) in wanted for t in _filled_by(entry)):
            wanted.update(map(id, given_to(entry)))
            if tape.whole or _has_graph(entry):  # else some of the calls for it may have been forgotten
                first = min(first, index)
    return entries[first:]


def _differentiates(entry: Entry) -> bool:
    return entry.kind == "backward" or entry.derivative or getattr(entry.call, "__name__", "") == "grad"


def _filled_by(entry: Entry) -> list[Tensor]:
    written = tensors_in(written_to(entry.args, entry.kwargs)) if entry.kind == "write" else []
    return [*(tensor for tensor, _ in entry.made), *written]


def _has_graph(entry: Entry) -> bool:
    return any(tensor.requires_grad for tensor, _ in entry.made)
