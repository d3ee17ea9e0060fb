"""Which calls since the last update were made for the batch at hand: a program validates, measures and
collects data between two updates, too."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, Tape, given_to, tensors_in
from nanwatch.watching.torch_functions import written_to

COLLECT = frozenset("stack cat concat concatenate vstack hstack dstack".split())
"""Functions that make a batch of samples: what was done with those before was not done for this batch."""
SELECT = frozenset(
    "__getitem__ index_select select narrow split chunk unbind tensor_split gather take masked_select".split()
)
"""And those that take one out of all data."""


def of_the_batch(tape: Tape, earlier: Iterable[Tape] = ()) -> list[Entry]:
    """From the first call on that something was differentiated by, or that was given the same data, or new
    data to learn from; all of them where nothing was differentiated. `earlier`: what was in use before the
    update is no data of this batch (a mask, all rows of a small data set)."""
    entries, ends = tape.entries, _ends(tape)
    if not ends:
        return entries
    first, data = _ancestors(tape, ends)
    known = {id(t) for e in entries if isinstance(e.call, nn.Module) for t in _state_of(e.call)}
    known.update(key for each in earlier for key in (*each.used, *each.made))
    data -= known
    for index, entry in enumerate(entries[:first]):
        given = set(map(id, given_to(entry)))
        if given & data or (given and not given & known and _learns(entry)):
            return entries[index:]
        if given & known:
            known.update(id(t) for t, _ in entry.made)
    return entries[first:]


def _ends(tape: Tape) -> list[int]:
    """Where something is differentiated for the update; what asks for a derivative may be a measure."""
    backwards = [i for i, entry in enumerate(tape.entries) if entry.kind == "backward"]
    return backwards or [i for i, entry in enumerate(tape.entries) if _is_derivative(entry)]


def _ancestors(tape: Tape, ends: list[int]) -> tuple[int, set[int]]:
    """The first call that what was differentiated came of, and the ids of what such calls were given."""
    entries, first = tape.entries, ends[0]
    wanted = {id(t) for i in ends for t in given_to(entries[i])}
    written = {key_of(t) for i in ends for t in given_to(entries[i])}
    data: set[int] = set()
    for index in range(ends[-1], -1, -1):
        entry = entries[index]
        made = any(id(t) in wanted for t, _ in entry.made)
        if not made and not any(key_of(t) in written for t in _written_by(entry)):
            continue
        name, has_graph = getattr(entry.call, "__name__", ""), any(_has_graph(t) for t, _ in entry.made)
        if tape.whole or has_graph:  # else calls like it are forgotten
            first = min(first, index)
            data.update(map(id, given_to(entry)) if name not in COLLECT | SELECT else ())
        if has_graph or name not in COLLECT:
            wanted.update(map(id, given_to(entry)))
            written.update(map(key_of, given_to(entry)))
    return first, data


def _is_derivative(entry: Entry) -> bool:
    return entry.derivative or getattr(entry.call, "__name__", "") == "grad"


def _written_by(entry: Entry) -> list[Tensor]:
    return tensors_in(written_to(entry.args, entry.kwargs)) if entry.kind == "write" else []


def _learns(entry: Entry) -> bool:
    return entry.kind == "module" and entry.context.grad and entry.training


def _state_of(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _has_graph(tensor: Tensor) -> bool:
    try:
        return tensor.requires_grad and tensor.grad_fn is not None
    except RuntimeError:  # a view whose base was changed in place without autograd
        return True
