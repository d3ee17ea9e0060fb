"""Gradients that still carry the loss scale of a GradScaler are unscaled before they are clipped, once."""

from __future__ import annotations

from typing import Any

from torch.amp.grad_scaler import OptState

from nanwatch.act.named_gradients import Optimizers, optimizers_of
from nanwatch.errors import NanwatchError
from nanwatch.messages import say


def unscale_once(scaler: Any, optimizer: Optimizers) -> None:
    """The scaler knows for each optimizer whether this step's gradients are unscaled already."""
    if scaler is None or not scaler.is_enabled():
        return
    states = scaler._per_optimizer_states
    optimizers = [_innermost(o) for o in optimizers_of(optimizer)]
    for one in optimizers:
        if states[id(one)]["stage"] is not OptState.UNSCALED:
            scaler.unscale_(one)
    if not optimizers and not any(state["stage"] is OptState.UNSCALED for state in states.values()):
        raise NanwatchError(say("clip.which_optimizer"))


def _innermost(optimizer: Any) -> Any:
    """Without what accelerate puts around it: the scaler knows the one inside."""
    while (inner := getattr(optimizer, "optimizer", None)) is not None:
        optimizer = inner
    return optimizer
