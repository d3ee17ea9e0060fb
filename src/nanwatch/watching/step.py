"""What is known about the step that the program is in."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer

from nanwatch.records import StepFacts
from nanwatch.watching.sentinel import Verdict

NOTHING_WRONG = Verdict(None, None, None)


@dataclass(slots=True)
class Step:
    """Since the last update. `events`: the order of calls (forward, scale, backward, unscale, clip, step)."""

    number: int
    epoch: int | None = None
    """The pass over the data that the last batch belongs to."""
    events: list[str] = field(default_factory=list)
    losses: list[torch.Tensor] = field(default_factory=list)
    given: list[tuple[torch.Tensor, torch.Tensor | None]] = field(default_factory=list)
    """Those of the losses that were differentiated with a gradient of the program's, and that gradient."""
    unscaled: dict[int, torch.Tensor] = field(default_factory=dict)
    """id of a loss that a GradScaler has multiplied -> the loss before."""
    leaves: list[torch.Tensor] = field(default_factory=list)
    """In a program that updates by hand: what the backward under way will fill the gradients of."""
    gradients: int = 0
    """How many the verdict was given."""
    clip: tuple[frozenset[int], torch.Tensor] | None = None
    """(ids of the parameters, their norm) that clipping has computed."""
    zeroed: set[int] = field(default_factory=set)
    """ids of the optimizers whose gradients were cleared since the last backward."""
    clipping: list[Callable[[], Any]] = field(default_factory=list)
    """The calls that clipped the gradients, to be made again."""
    clipped_by_value: bool = False
    """The gradients may look better than they were: their norm before clipping decides."""
    scaler: Any = None
    scaler_checked: bool = False
    """A GradScaler has looked at the gradients: it does not let a bad one through."""
    model_returned: bool = False
    closure: bool = False
    """The optimizer calls the model itself."""
    updating: bool = False
    """An optimizer's step is under way."""
    updated_inside: Optimizer | None = None
    """An optimizer that stepped in the middle of a backward, from a hook: the step ends with the backward."""
    verdict: Verdict = NOTHING_WRONG
    verdict_is_late: bool = False
    notable: dict[str, Any] = field(default_factory=dict)
    """For the timeline: what is worth a line beside the numbers."""
    began: float = field(default_factory=time.perf_counter)

    def facts(self, verdict: Verdict, optimizer: Optimizer | None, traced: dict[str, Any]) -> StepFacts:
        groups = optimizer.param_groups if optimizer is not None else []
        return StepFacts(
            self.number,
            verdict.loss,
            verdict.grad_norm,
            tuple([float(g.get("lr", math.nan)) for g in groups]),
            None if self.scaler is None else self._scale(),
            time.perf_counter() - self.began,
            self.epoch,
            tuple(self.events),
            {**traced, **self.notable},
        )

    def _scale(self) -> float | None:
        """The loss scale, where it can be read without waiting for a device."""
        scale = getattr(self.scaler, "_scale", None)
        return float(scale) if scale is not None and scale.device.type == "cpu" else None
