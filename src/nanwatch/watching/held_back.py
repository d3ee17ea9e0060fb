"""An update that is not made: weights, moments and step counts stay as they were before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from nanwatch.watching.contents import Held, held_by, put_contents

HANDED_ON = (
    "param_groups",
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "found_inf",
    "grad_scale",
)
"""Attributes of an optimizer that are not its own memory."""


@dataclass
class EmptyGroups:
    """For an optimizer that has not begun: until it is done it finds nothing to update, nobody is told of an
    update (an average of the weights may be kept in a hook of its own), and what it counts does not count."""

    optimizer: Optimizer
    groups: list[dict[str, Any]]
    told: list[tuple[int, Any]]
    attributes: dict[str, Any]
    held: Held

    @staticmethod
    def of(optimizer: Optimizer) -> EmptyGroups:
        told = optimizer._optimizer_step_post_hooks
        own = {name: value for name, value in vars(optimizer).items() if name not in HANDED_ON}
        held = EmptyGroups(optimizer, optimizer.param_groups, list(told.items()), own, held_by(own.values()))
        optimizer.param_groups = [{**group, "params": []} for group in held.groups]
        told.clear()
        return held

    def give_back(self) -> None:
        optimizer = self.optimizer
        optimizer.param_groups = self.groups
        optimizer._optimizer_step_post_hooks.update(self.told)
        put_contents(self.held)
        vars(optimizer).update(self.attributes)
        for name in [n for n in vars(optimizer) if n not in self.attributes and n not in HANDED_ON]:
            del vars(optimizer)[name]  # what it has made for the first time


@dataclass
class Copies:
    """For an optimizer that calls the model itself, in the middle of its step (LBFGS): all that the step
    may change, as it was before."""

    optimizer: Optimizer
    weights: list[tuple[torch.Tensor, torch.Tensor]]
    state: dict[Any, Any]

    @staticmethod
    def of(optimizer: Optimizer) -> Copies:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        weights = [(p, p.detach().clone()) for p in parameters]
        return Copies(optimizer, weights, {p: _copied(state) for p, state in optimizer.state.items()})

    def put_back(self) -> None:
        with torch.no_grad():
            for weight, before in self.weights:
                weight.copy_(before)
        self.optimizer.state.clear()
        self.optimizer.state.update(self.state)


def replace_by_zero(tensors: Iterable[torch.Tensor]) -> None:
    """In place. It hides a fault and is for debugging only."""
    with torch.no_grad():
        for tensor in tensors:
            if tensor.is_floating_point() or tensor.is_complex():
                torch.nan_to_num(tensor, 0.0, 0.0, 0.0, out=tensor)


def _copied(value: Any) -> Any:
    """Tensors cloned, containers rebuilt, anything else as it is."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
