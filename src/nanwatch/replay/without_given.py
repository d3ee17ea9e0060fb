"""Which of two did the harm: NaN that came in from outside, or what was born beside it? The step is run
again with a plausible number in the place of each NaN that it was given."""

from __future__ import annotations

from collections.abc import Callable

import torch

from nanwatch.replay.again import Again, Changes, run_again
from nanwatch.replay.trace import Op
from nanwatch.replay.tracer import measurable
from nanwatch.watching.module_calls import ModuleCalls
from nanwatch.watching.storages import key_of
from nanwatch.watching.trouble import Trouble


def run_without_given(trouble: Trouble, calls: ModuleCalls, outside: Callable[..., torch.Tensor]) -> Again:
    changes = Changes(outside=outside)
    return run_again(trouble.tape, trouble.earlier, calls, trouble.scaler_search, changes)


def with_numbers(tensor: torch.Tensor, but: torch.Tensor | None = None) -> torch.Tensor:
    """Each NaN becomes the first number of its column: a column of one value stays one. `but`: the places
    that stay as they are."""
    if not measurable(tensor) or tensor.layout is not torch.strided or not bool(torch.isnan(tensor).any()):
        return tensor
    with torch.no_grad():
        values = tensor.detach()
        rows = values.reshape(values.shape[0] if values.dim() else 1, -1)
        finite = torch.isfinite(rows)
        first = rows.gather(0, finite.int().argmax(0, keepdim=True))
        some = rows[finite][0] if bool(finite.any()) else torch.zeros_like(rows[0, 0])
        filling = torch.where(torch.isfinite(first), first, some).expand_as(rows).reshape(values.shape)
        missing = torch.isnan(values) if but is None else torch.isnan(values) & ~but
        return torch.where(missing, filling, values)


def keeping(op: Op, made: list[torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """What was born in the op stays in what it made; all else that is NaN becomes a number."""
    keys = {key_of(t) for t in made}

    def outside(tensor: torch.Tensor) -> torch.Tensor:
        own = op.born is not None and key_of(tensor) in keys and tensor.shape == op.born.shape
        return with_numbers(tensor, op.born if own else None)

    return outside
