"""Which rows of the batch."""

from __future__ import annotations

from collections.abc import Container, Iterator

import torch

from nanwatch.replay.fresh import readable
from nanwatch.replay.tracer import measurable
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, Tape, tensors_in


def bad_rows(
    bad: torch.Tensor | None, tape: Tape, only_nan: bool = False, folded: bool = True
) -> tuple[int, ...]:
    """The rows of the batch in which `bad` is not finite, where the batch can be found in its shape.
    `folded`: also where rows and something else share its first dimension."""
    size = batch_size(tape)
    if bad is None or not size or bad.dim() == 0 or bad.layout is not torch.strided or not measurable(bad):
        return ()
    values = readable(bad)
    mask = torch.isnan(values) if only_nan else ~torch.isfinite(values)
    dims = [d for d in range(bad.dim()) if bad.shape[d] == size]
    if dims:
        rows = mask.transpose(0, dims[0]).reshape(size, -1).any(1)
    elif folded and bad.shape[0] % size == 0 and bad.shape[0] // size in _folds(bad, tape):
        rows = mask.reshape(size, -1).any(1)
    else:
        return ()
    return tuple(int(i) for i in rows.nonzero().reshape(-1).tolist())


def _folds(bad: torch.Tensor, tape: Tape) -> Container[int]:
    """With how many of something else a row of the batch may share a dimension: heads of attention, of which
    nothing is known, or in a matrix what dimensions of the batch come to (frames, pixels)."""
    if bad.dim() > 2:
        return range(1, int(bad.shape[0]) + 1)
    calls = [entry for entry in tape.entries if entry.kind == "module"]
    shapes = {t.shape[1:4] for entry in calls for t in tensors_in((entry.args, entry.kwargs))}
    found = {1}
    for shape in shapes:
        products = {1}
        for size in shape:
            products |= {int(size) * product for product in products}
        found |= products
    return found


def bad_rows_of_batch(tape: Tape) -> tuple[int, ...]:
    """The rows that are not finite in what the model was given, else in what its result was put together
    with: the labels are given to the loss alone."""
    for entry in tape.entries:
        if entry.kind == "module":
            for tensor in tensors_in((entry.args, entry.kwargs)):
                rows = bad_rows(tensor, tape)
                if rows:
                    return rows
    return _bad_rows_beside(tape)


def _bad_rows_beside(tape: Tape) -> tuple[int, ...]:
    for entry, results in _results_given(tape):
        for tensor in tensors_in((entry.args, entry.kwargs)) if results and entry.kind == "op" else ():
            rows = () if key_of(tensor) in results else bad_rows(tensor, tape, folded=False)
            if rows:
                return rows
    return ()


def _results_given(tape: Tape) -> Iterator[tuple[Entry, set[int]]]:
    """Every call, and the memory it was given that holds what a model made, or what was made of that."""
    made: set[int] = set()
    for entry in tape.entries:
        results = {key_of(t) for t in tensors_in((entry.args, entry.kwargs))} & made
        yield entry, results
        if results or entry.kind == "module":
            made.update(key_of(t) for t in tensors_in(entry.outputs))


def _rows_of(batch: torch.Tensor, tape: Tape) -> int:
    """Its first dimension; or the second, where it is that one which the labels have: (time, batch, channels)
    is what torch's recurrent layers are given. The second one of a matrix of numbers are features."""
    first = int(batch.shape[0])
    if batch.dim() < (3 if batch.is_floating_point() else 2):
        return first
    second = int(batch.shape[1])
    beside = {
        int(tensor.shape[0])
        for entry, results in _results_given(tape)
        for tensor in (tensors_in((entry.args, entry.kwargs)) if results else ())
        if tensor.dim() > 0 and key_of(tensor) not in results and not tensor.requires_grad
    }
    return second if first not in beside and second in beside else first


def _rows_beside_the_first(given: list[torch.Tensor], entry: Entry) -> int | None:
    """The size that another argument shares with the output, where the output has none of the first: words of
    all bags in one row, and where each bag begins."""
    made = [tensor.shape for tensor in tensors_in(entry.outputs) if tensor.dim() > 0]
    if any(given[0].shape[0] in shape for shape in made):
        return None
    rows = {int(shape[0]) for shape in made}
    return next((int(t.shape[0]) for t in given[1:] if int(t.shape[0]) in rows), None)


def batch_size(tape: Tape) -> int | None:
    """How many rows the last call of a model was given. A criterion is a module too, but it is given results,
    and these may have the batch in another dimension."""
    calls = [(entry, results) for entry, results in _results_given(tape) if entry.kind == "module"]
    for entry in [*reversed([e for e, r in calls if not r]), *reversed([e for e, r in calls if r])]:
        given = [tensor for tensor in tensors_in((entry.args, entry.kwargs)) if tensor.dim() > 0]
        if given:
            return _rows_beside_the_first(given, entry) or _rows_of(given[0], tape)
    for tensor in [*tape.used.values(), *tape.made.values()]:
        if tensor.dim() > 0 and not tensor.requires_grad:
            return int(tensor.shape[0])
    return None
