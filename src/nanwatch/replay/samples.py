"""Which rows of the batch."""

from __future__ import annotations

import torch

from nanwatch.replay.tracer import measurable
from nanwatch.watching.tape import Tape, tensors_in


def bad_rows(bad: torch.Tensor | None, tape: Tape, only_nan: bool = False) -> tuple[int, ...]:
    """The rows of the batch in which `bad` is not finite, where the batch can be found in its shape."""
    size = batch_size(tape)
    if (
        bad is None
        or size is None
        or bad.dim() == 0
        or bad.layout is not torch.strided
        or not measurable(bad)
    ):
        return ()
    mask = torch.isnan(bad.detach()) if only_nan else ~torch.isfinite(bad.detach())
    dims = [d for d in range(bad.dim()) if bad.shape[d] == size]
    if dims:
        rows = mask.transpose(0, dims[0]).reshape(size, -1).any(1)
    elif bad.shape[0] % size == 0 and bad.shape[0] > 0:
        rows = mask.reshape(size, -1).any(1)
    else:
        return ()
    return tuple(int(i) for i in rows.nonzero().reshape(-1).tolist())


def bad_rows_of_batch(tape: Tape) -> tuple[int, ...]:
    """The rows that are not finite in what the model was given."""
    for entry in tape.entries:
        if entry.kind == "module":
            for tensor in tensors_in((entry.args, entry.kwargs)):
                rows = bad_rows(tensor, tape)
                if rows:
                    return rows
    return ()


def batch_size(tape: Tape) -> int | None:
    """How many rows the last call of a model was given."""
    for entry in reversed(tape.entries):
        if entry.kind == "module":
            for tensor in tensors_in((entry.args, entry.kwargs)):
                if tensor.dim() > 0:
                    return int(tensor.shape[0])
    for tensor in [*tape.used.values(), *tape.made.values()]:
        if tensor.dim() > 0 and not tensor.requires_grad:
            return int(tensor.shape[0])
    return None
