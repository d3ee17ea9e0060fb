"""The last update of each optimizer: any of them may have made weights bad that are bad now."""

from __future__ import annotations

import weakref
from collections import deque
from functools import partial
from operator import attrgetter, is_not
from typing import NamedTuple

import torch
from torch.optim import Optimizer

from nanwatch.watching.sentinel import weights_of
from nanwatch.watching.stack import Stack

MOST = 16
"""Optimizers: a program may make one for each layer, or a new one for each task."""

MOST_CHANGES = 64
"""Of which parameters have a gradient."""

ALL = b""
"""What stands for a gradient in every parameter."""


class Given(NamedTuple):
    """The last of some updates, one after the other, in which the same parameters had a gradient."""

    step: int
    to: bytes
    """For each parameter 1 or 0, or `ALL`."""


class LastUpdate(NamedTuple):
    """The last update that was made before a step."""

    step: int
    stack: Stack
    optimizer: weakref.ref[Optimizer]
    grad_norm: float | None
    rates: tuple[float | torch.Tensor | None, ...]
    """That it was made with, for each group: a schedule, or the program, may have set others since."""
    given: deque[Given]
    """To which parameters gradients were given in it, last, and in those before it."""

    def last_given_to(self, index: int) -> int | None:
        """The step of the last update in which a parameter had a gradient: without one it stays as it is.
        None where that is longer ago than is known."""
        return next(
            (g.step for g in reversed(self.given) if g.to == ALL or any(g.to[index : index + 1])), None
        )


class LastUpdates:
    """Nothing of an optimizer is held by them."""

    def __init__(self) -> None:
        self._of: dict[int, LastUpdate] = {}
        """id of an optimizer -> its last update; the latest comes last."""

    def note(
        self,
        optimizer: Optimizer,
        step: int,
        gradients: int,
        stack: Stack = (),
        grad_norm: float | None = None,
        rates: tuple[float | torch.Tensor | None, ...] = (),
    ) -> LastUpdate:
        """`gradients`: how many its parameters had, if somebody has counted them."""
        before = self._of.pop(id(optimizer), None)
        if before is not None and before.optimizer() is optimizer:
            known, given = before.optimizer, before.given
        else:
            known, given = weakref.ref(optimizer), deque(maxlen=MOST_CHANGES)
        parameters = 0
        for group in optimizer.param_groups:
            parameters += len(group["params"])
        to = ALL if gradients == parameters else _given_to(optimizer)
        if given and given[-1].to == to:
            given.pop()
        given.append(Given(step, to))
        noted = self._of[id(optimizer)] = LastUpdate(step, stack, known, grad_norm, rates, given)
        if len(self._of) > MOST:
            del self._of[next(iter(self._of))]
        return noted

    @property
    def latest_first(self) -> tuple[LastUpdate, ...]:
        return tuple(reversed(self._of.values()))


def _given_to(optimizer: Optimizer) -> bytes:
    """Where some have none: else the parameters need not be gone through."""
    to = bytes(map(_is_there, map(_gradient_of, weights_of(optimizer))))
    return to if 0 in to else ALL


_gradient_of = attrgetter("grad")
_is_there = partial(is_not, None)
