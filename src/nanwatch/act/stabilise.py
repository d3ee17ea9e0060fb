"""`nanwatch.stabilise(optimizer, total_steps=…)`: warm-up, cosine, clipping and the rate, in one line.

schedule = nanwatch.stabilise(optimizer, total_steps=10_000)
…
optimizer.step()   # clips first
schedule.step()
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from nanwatch import arguments
from nanwatch.act.rate_curve import share_of_rate, usual_warmup
from nanwatch.errors import NanwatchError
from nanwatch.messages import say
from nanwatch.watching.shield import describe, warn

CALL = "nanwatch.stabilise"
_stabilised: weakref.WeakKeyDictionary[Optimizer, weakref.ref[Stabilised]] = weakref.WeakKeyDictionary()


def stabilise(
    optimizer: Optimizer,
    *,
    total_steps: int,
    warmup_steps: int | None = None,
    learning_rate: float | None = None,
    clip_norm: float | None = 1.0,
) -> Stabilised:
    """Gives `optimizer` a rate that rises over `warmup_steps` and falls along a cosine to 0 at `total_steps`,
    and clips its gradients at `clip_norm` before each of its steps (None: no clipping).

    `learning_rate` is the highest rate; of several parameter groups the others keep their ratio to the
    fastest. None keeps the rates that are set. Returns the scheduler: call its `step()` after each
    `optimizer.step()`, keep its `state_dict()` in checkpoints, and `close()` puts everything back. The same
    call again changes nothing; a call with other values takes the place of the first.
    """
    inner = _unwrapped(optimizer)
    wanted = _checked(total_steps, warmup_steps, learning_rate, clip_norm)
    known = _stabilised.get(inner)
    present = known() if known is not None else None
    if present is not None and not present.closed:
        if present.wanted == wanted:
            return present
        present.close()
    scheduler = Stabilised(inner, *wanted)
    _stabilised[inner] = weakref.ref(scheduler)
    return scheduler


class Stabilised(LRScheduler):
    """The schedule of one optimizer, and the clipping before its steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        total_steps: int,
        warmup_steps: int,
        learning_rate: float | None,
        clip_norm: float | None,
    ) -> None:
        self.wanted = (total_steps, warmup_steps, learning_rate, clip_norm)
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.clip_norm = clip_norm
        self.closed = False
        self._before = [(_rate(group["lr"]), group.get("initial_lr")) for group in optimizer.param_groups]
        rates = [_rate(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]
        fastest = max(rates)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if learning_rate is not None:
                rate = learning_rate * (rate / fastest if fastest > 0 else 1.0)
            group["initial_lr"] = rate
        super().__init__(optimizer)
        self._hook = None if clip_norm is None else optimizer.register_step_pre_hook(self._before_step)

    def get_lr(self) -> list[float | torch.Tensor]:
        share = share_of_rate(self.last_epoch, self.total_steps, self.warmup_steps)
        return [rate * share for rate in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, for checkpoints."""
        own = ("optimizer", "wanted", "closed", "_before", "_hook")
        return {key: value for key, value in self.__dict__.items() if key not in own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where the state was kept; the optimizer gets the rate of that step at once."""
        groups = self.optimizer.param_groups
        rates = state_dict.get("_last_lr", [])
        if len(rates) != len(groups):
            raise NanwatchError(say("stabilise.other_state", found=len(rates), expected=len(groups)))
        super().load_state_dict(state_dict)
        for group, rate in zip(groups, rates, strict=True):
            _set_rate(group, _rate(rate))

    def close(self) -> None:
        """No more clipping, and the rates as they were before."""
        if self.closed:
            return
        self.closed = True
        if self._hook is not None:
            self._hook.remove()
        for group, (rate, initial) in zip(self.optimizer.param_groups, self._before, strict=False):
            _set_rate(group, rate)
            if initial is None:
                group.pop("initial_lr", None)
            else:
                group["initial_lr"] = initial

    # Clipping

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """Clips, or, where the step computes the gradients itself, has its closure clip them."""
        closure = kwargs.get("closure")
        if closure is None and len(args) > 1:
            closure = args[1]
        if not callable(closure):
            self._clip(optimizer)
            return None

        def clipped(*inner: Any, **named: Any) -> Any:
            loss = closure(*inner, **named)
            self._clip(optimizer)
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": clipped}
        return (args[0], clipped, *args[2:]), kwargs

    def _clip(self, optimizer: Optimizer) -> None:
        if self.clip_norm is None or self._hook is None:
            return
        try:
            clip(optimizer, self.clip_norm)
        except Exception as error:
            self._hook.remove()
            self._hook = None
            warn(say("stabilise.clipping_failed", error=describe(error)))


def clip(optimizer: Optimizer, most: float) -> None:
    """As `torch.nn.utils.clip_grad_norm_` does. A fused optimizer under a GradScaler gets its gradients
    scaled, and takes the scale out itself: there the norm is taken without it."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    if not parameters:
        return
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
    if hasattr(norm, "full_tensor"):  # sharded: the norm over all ranks
        norm = norm.full_tensor()
    scale = getattr(optimizer, "grad_scale", None)
    if scale is not None:
        norm = norm / scale.to(norm.device)
    torch.nn.utils.clip_grads_with_norm_(parameters, most, norm)


# Values that cannot be


def _unwrapped(optimizer: Any) -> Optimizer:
    """The optimizer whose steps are made: accelerate and others put one around it."""
    inner = optimizer
    while isinstance(getattr(inner, "optimizer", None), Optimizer):
        inner = inner.optimizer
    if not isinstance(inner, Optimizer):
        raise NanwatchError(say("stabilise.not_an_optimizer", found=type(optimizer).__name__))
    return inner


def _checked(
    total_steps: Any, warmup_steps: Any, learning_rate: Any, clip_norm: Any
) -> tuple[int, int, float | None, float | None]:
    total = arguments.whole_number(CALL, "total_steps", total_steps, 1)
    if warmup_steps is None:
        warmup = usual_warmup(total)
    else:
        warmup = arguments.whole_number(CALL, "warmup_steps", warmup_steps, 0)
    if warmup >= total:
        raise NanwatchError(say("stabilise.long_warmup", warmup=warmup, total=total))
    return total, warmup, _positive("learning_rate", learning_rate), _positive("clip_norm", clip_norm)


def _positive(name: str, value: Any) -> float | None:
    return None if value is None else arguments.positive_number(CALL, name, value)


def _rate(value: Any) -> float:
    return float(value)


def _set_rate(group: dict[str, Any], rate: float) -> None:
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
