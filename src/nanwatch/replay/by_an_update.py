"""Weights that are bad, and that nobody else wrote: which of the updates before can have made them so?"""

from __future__ import annotations

import math

from nanwatch.messages import say
from nanwatch.replay.trace import Op, Operand
from nanwatch.replay.tracer import measurable
from nanwatch.replay.update_again import update_again
from nanwatch.tensors import is_finite
from nanwatch.watching.last_updates import LastUpdate
from nanwatch.watching.sentinel import weights_of
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import tensors_in
from nanwatch.watching.trouble import Trouble


def updates_of(trouble: Trouble, weight: Operand) -> list[tuple[LastUpdate, list[str]]]:
    """Those of the optimizers that have this weight, the latest first, and what is to be said of each. Where
    none has it (it may be a copy of what one has): the last."""
    living = [(u, o) for u in trouble.last_updates if (o := u.optimizer()) is not None]
    places = [(u, [key_of(p) for p in weights_of(o)]) for u, o in living]
    found = [_that_wrote(u, keys.index(weight.key)) for u, keys in places if weight.key in keys]
    return found or [(update, []) for update, _ in living[:1]]


def _that_wrote(last: LastUpdate, index: int) -> tuple[LastUpdate, list[str]]:
    """The last update of an optimizer leaves a parameter as it is that has no gradient."""
    step = last.last_given_to(index)
    if step is None:
        return last, [say("watch.may_be_an_earlier_update")]
    return last._replace(step=step), []


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
