"""What tasks in other threads could reach, and when: memory that this thread writes before a task has ended
was written under its hands.

A task is known by the tensors it was handed (its arguments, the attributes of the object whose method it is,
the variables of its closure) with their versions then and when it ended, and by what it returned. No tensor
is read and none is kept alive.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import torch

from nanwatch.watching.stack import Stack
from nanwatch.watching.tape import tensors_in, tensors_of_call, version_of

MOST_KEPT = 64
"""Tasks that can be asked about."""
MOST_TENSORS = 64
"""Tensors looked after for one task."""


@dataclass
class Reached:
    """A tensor that a task could get at."""

    tensor: weakref.ref[torch.Tensor]
    version: int
    """When the task was handed over."""
    at_end: int | None = None
    """When it had ended; None as long as it has not."""


@dataclass
class Task:
    """Work that was given to another thread."""

    stack: Stack
    reached: list[Reached]
    made: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    """What it returned."""

    def ended(self, result: Any = None) -> None:
        for each in self.reached:
            tensor = each.tensor()
            if tensor is not None:
                each.at_end = version_of(tensor)
        self.made = [weakref.ref(t) for t in tensors_in(result)[:MOST_TENSORS]]


_recent: deque[Task] = deque(maxlen=MOST_KEPT)


def recent_tasks() -> list[Task]:
    """The last first."""
    return list(reversed(_recent))


def noted(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], stack: Stack) -> Task:
    """A task that is about to be handed over."""
    found = [*tensors_of_call(args, kwargs), *_around(function)][:MOST_TENSORS]
    task = Task(stack, [Reached(weakref.ref(t), version_of(t)) for t in found])
    _recent.append(task)
    return task


def _around(function: Callable[..., Any]) -> list[torch.Tensor]:
    """What a function gets at without being given it."""
    held: list[Any] = []
    if isinstance(function, MethodType):
        held += getattr(function.__self__, "__dict__", {}).values()
        function = function.__func__
    for cell in getattr(function, "__closure__", None) or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:
            continue  # not bound yet
    return [value for value in held if isinstance(value, torch.Tensor)]
