"""Weights that are bad, and that nobody else wrote: which of the updates before can have made them so?"""

from __future__ import annotations

import math

from nanwatch.replay.trace import Op, Operand
from nanwatch.replay.tracer import measurable
from nanwatch.replay.update_again import update_again
from nanwatch.tensors import is_finite
from nanwatch.watching.last_updates import LastUpdate
from nanwatch.watching.sentinel import weights_of
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import tensors_in
from nanwatch.watching.trouble import Trouble


def updates_of(trouble: Trouble, weight: Operand) -> list[LastUpdate]:
    """Those of the optimizers that have this weight, the latest first. Where none has it (it may be a copy of
    what one has): the last."""
    living = [(u, o) for u in trouble.last_updates if (o := u.optimizer()) is not None]
    own = [u for u, o in living if any(key_of(p) == weight.key for p in weights_of(o))]
    return own or [u for u, _ in living[:1]]


def update_made_again(last: LastUpdate) -> Op | None:
    """The op of the optimizer's own arithmetic that goes bad."""
    optimizer = last.optimizer()
    if optimizer is None:
        return None
    return update_again(optimizer, last.step, last.stack, last.grad_norm, last.rates)


def keeps_something_bad(last: LastUpdate, weight: Operand) -> bool:
    """Whether what the optimizer keeps of this weight is not finite either, and the gradients of its last
    update were: that update has spoiled the weight."""
    good = last.grad_norm is not None and math.isfinite(last.grad_norm)
    optimizer = last.optimizer() if good else None
    kept = {} if optimizer is None else optimizer.state
    of_weight = (state for p, state in kept.items() if key_of(p) == weight.key)
    return any(measurable(t) and not is_finite(t) for state in of_weight for t in tensors_in(state))
