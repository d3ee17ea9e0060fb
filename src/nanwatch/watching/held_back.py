"""An update that is not made: weights, moments and step counts stay as they were before it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from nanwatch.watching.contents import Held, all_held_by, held_by, put_contents
from nanwatch.watching.randomness import Rng
from nanwatch.watching.storages import key_of

HANDED_ON = (
    "param_groups",
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "found_inf",
    "grad_scale",
    "state",
)
"""Attributes of an optimizer that are not its own memory."""


def held_back(optimizer: Optimizer) -> EmptyGroups | Copies:
    """Until it is done. torch's own optimizers do nothing when they find nothing to update; others may keep
    a list of the weights elsewhere, or need at least one: they make their step, and it is undone."""
    if not type(optimizer).__module__.startswith("torch."):
        with contextlib.suppress(Exception):  # no memory for copies, say
            copies = Copies.of(optimizer)
            copies.stand_still()
            return copies
    return EmptyGroups.of(optimizer)


@dataclass
class OwnMemory:
    """The attributes of an optimizer, and what is in them."""

    optimizer: Optimizer
    attributes: dict[str, Any]
    held: Held

    @staticmethod
    def of(optimizer: Optimizer, weights: frozenset[int] | None = None) -> OwnMemory:
        """`weights`: where their memory is given, large tensors too, but for those."""
        own = {name: value for name, value in vars(optimizer).items() if name not in HANDED_ON}
        return OwnMemory(optimizer, own, held_by([own]) if weights is None else all_held_by([own], weights))

    def put_back(self) -> None:
        put_contents(self.held)
        now = vars(self.optimizer)
        now.update(self.attributes)
        for name in [n for n in now if n not in self.attributes and n not in HANDED_ON]:
            del now[name]  # what it has made for the first time


@dataclass
class EmptyGroups:
    """For an optimizer that has not begun: until it is done it finds nothing to update, nobody is told of an
    update (an average of the weights may be kept in a hook of its own), and what it counts does not count."""

    optimizer: Optimizer
    groups: list[dict[str, Any]]
    told: list[tuple[int, Any]]
    memory: OwnMemory

    @staticmethod
    def of(optimizer: Optimizer) -> EmptyGroups:
        told = optimizer._optimizer_step_post_hooks
        held = EmptyGroups(optimizer, optimizer.param_groups, list(told.items()), OwnMemory.of(optimizer))
        optimizer.param_groups = [{**group, "params": []} for group in held.groups]
        told.clear()
        return held

    def draws_from_here(self) -> None:
        """It draws nothing."""

    def give_back(self) -> None:
        self.optimizer.param_groups = self.groups
        self.optimizer._optimizer_step_post_hooks.update(self.told)
        self.memory.put_back()


@dataclass
class Copies:
    """All that a step may change, as it was before: for an optimizer that calls the model in the middle of it
    (LBFGS), or is not torch's own. It is put back in its place: a program, or a view, may hold it too."""

    optimizer: Optimizer
    weights: list[tuple[torch.Tensor, torch.Tensor]]
    held: Held
    told: list[tuple[int, Any]]
    memory: OwnMemory
    rng: Rng | None = None

    @staticmethod
    def of(optimizer: Optimizer) -> Copies:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        memory = frozenset(map(key_of, parameters))
        return Copies(
            optimizer,
            [(p, p.detach().clone()) for p in parameters],
            all_held_by([optimizer.state, *optimizer.param_groups], memory),
            list(optimizer._optimizer_step_post_hooks.items()),
            OwnMemory.of(optimizer, memory),
        )

    def stand_still(self) -> None:
        """Gradients of zero, and nobody is told of an update."""
        self.optimizer._optimizer_step_post_hooks.clear()
        with torch.no_grad():
            for weight, _ in self.weights:
                if weight.grad is not None:
                    weight.grad.zero_()

    def draws_from_here(self) -> None:
        """Noise that the step draws is as good as not drawn."""
        self.rng = Rng.of_all()

    def give_back(self) -> None:
        with torch.no_grad():
            for weight, before in self.weights:
                weight.copy_(before)
        self.memory.put_back()
        self.optimizer._optimizer_step_post_hooks.update(self.told)
        put_contents(self.held)
        if self.rng is not None:
            self.rng.put_back()


def replace_by_zero(tensors: Iterable[torch.Tensor]) -> None:
    """In place. It hides a fault and is for debugging only."""
    with torch.no_grad():
        for tensor in tensors:
            if tensor.is_floating_point() or tensor.is_complex():
                torch.nan_to_num(tensor, 0.0, 0.0, 0.0, out=tensor)
