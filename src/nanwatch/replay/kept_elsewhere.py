"""What a model made and did not return: a loss that it keeps in an attribute, features that a hook has put
into a dict. The program takes it from there, and so must a replay.

autograd numbers what it records. What was made as the n-th in a call is, when the call is made again, what is
the n-th then: among all tensors that are alive it is found by that number, wherever it is kept.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nanwatch.watching.tape import Entry, made_inside, sequence_number


@dataclass
class _Call:
    """One that was made again: the numbers in between are of what was made in it."""

    entry: Entry
    began: int
    ended: int = 0

    @property
    def is_alike(self) -> bool:
        return self.ended - self.began == self.entry.ended - self.entry.began


class KeptElsewhere:
    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def begins(self, entry: Entry) -> None:
        self._calls.append(_Call(entry, sequence_number()))

    def ends(self) -> None:
        self._calls[-1].ended = sequence_number()

    def counterpart_of(self, tensor: Tensor) -> Tensor | None:
        """Of one that a call made which has been made again. Where that made something else than it did (in
        another precision), it must be the only one of its kind."""
        call = next((c for c in reversed(self._calls) if made_inside(c.entry, tensor)), None)
        if call is None:
            return None
        living = [t for t in _living(type(tensor)) if _is_like(t, tensor)]
        made = {number: t for t in living if call.began <= (number := _number_of(t)) < call.ended}
        found = made.get(_number_of(tensor) - call.entry.began + call.began) if call.is_alike else None
        return next(iter(made.values())) if found is None and len(made) == 1 else found


def _living(kind: type[Tensor]) -> list[Tensor]:
    things: list[Any] = gc.get_objects()
    return [thing for thing in things if type(thing) is kind]


def _is_like(found: Tensor, tensor: Tensor) -> bool:
    try:
        if found.shape != tensor.shape or found.output_nr != tensor.output_nr or found.grad_fn is None:
            return False
        assert tensor.grad_fn is not None
        return found.grad_fn.name() == tensor.grad_fn.name()
    except RuntimeError:  # a view whose base was changed in place without autograd
        return False


def _number_of(tensor: Tensor) -> int:
    assert tensor.grad_fn is not None
    return int(tensor.grad_fn._sequence_nr())
