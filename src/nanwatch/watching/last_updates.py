"""The last update of each optimizer: any of them may have made weights bad that are bad now."""

from __future__ import annotations

import weakref
from typing import NamedTuple

import torch
from torch.optim import Optimizer

from nanwatch.watching.stack import Stack

MOST = 16
"""Optimizers: a program may make one for each layer, or a new one for each task."""


class LastUpdate(NamedTuple):
    """The last update that was made before a step."""

    step: int
    stack: Stack
    optimizer: weakref.ref[Optimizer]
    grad_norm: float | None
    rates: tuple[float | torch.Tensor | None, ...] = ()
    """That it was made with, for each group: a schedule, or the program, may have set others since."""


class LastUpdates:
    """Nothing of an optimizer is held by them."""

    def __init__(self) -> None:
        self._of: dict[int, LastUpdate] = {}
        """id of an optimizer -> its last update; the latest comes last."""

    def note(self, optimizer: Optimizer, update: LastUpdate) -> None:
        self._of.pop(id(optimizer), None)
        self._of[id(optimizer)] = update
        if len(self._of) > MOST:
            del self._of[next(iter(self._of))]

    @property
    def latest_first(self) -> tuple[LastUpdate, ...]:
        return tuple(reversed(self._of.values()))
