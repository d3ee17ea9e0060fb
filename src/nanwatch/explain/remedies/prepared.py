"""A source edit in what the program prepares before a step, tried: the recorded calls that made the bad
tensor are made again with it, and the step is run with what comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from nanwatch.explain.case import runs_finite
from nanwatch.explain.instead import with_values
from nanwatch.explain.remedies.operands import Repair
from nanwatch.explain.remedies.places import user_place
from nanwatch.explain.state import all_entries, of_modules
from nanwatch.replay.again import Changes
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite
from nanwatch.watching.randomness import Rng
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, map_tensors, tensors_in
from nanwatch.watching.torch_functions import changes_its_input, written_to

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

DEEPEST = 40
"""Calls that are followed into each other."""


class CannotPrepare(Exception):
    """What made the tensor is not on record, or is not to be made again."""


def prepared_holds(case: Case, repair: Repair) -> bool | None:
    """Whether the step is finite with what the edited preparation makes; None when that cannot be said."""
    if repair.call is None:
        return None
    again = _Preparation(all_entries(case), repair)
    rng = Rng.now()
    try:
        with torch.no_grad():
            if case.phase == "weights":
                return _with_weights(case, again)
            finite = runs_finite(case.rerun(Changes(outside=again.made_anew)))
            return finite if again.repaired else None
    except CannotPrepare:
        return None
    finally:
        rng.put_back()


def _with_weights(case: Case, again: _Preparation) -> bool | None:
    bad = [h for h in of_modules(case.models) if measurable(h.tensor) and not is_finite(h.tensor)]
    values = [(held, again.made_anew(held.tensor.detach())) for held in bad]
    if not values or not again.repaired:
        return None
    return runs_finite(with_values(case, values))


class _Preparation:
    """The recorded calls of the program's own code, to be made again with one of them repaired."""

    def __init__(self, entries: list[Entry], repair: Repair) -> None:
        self._entries = entries
        self._repair = repair
        self._place = (repair.expression.code, repair.expression.lasti)
        self.repaired = False
        """The repaired call was among them."""

    def made_anew(self, tensor: torch.Tensor) -> torch.Tensor:
        """What the tensor would hold; itself when it is finite."""
        return self._value(tensor, len(self._entries), DEEPEST)

    def _value(self, tensor: torch.Tensor, before: int, depth: int) -> torch.Tensor:
        if not measurable(tensor) or is_finite(tensor):
            return tensor
        at = next((i for i in reversed(range(before)) if _makes(self._entries[i], tensor)), None)
        if at is None or depth == 0:
            raise CannotPrepare
        entry = self._entries[at]
        in_place = entry.kind == "write" or changes_its_input(entry.call, entry.kwargs)
        target = written_to(entry.args, entry.kwargs) if in_place else None
        if entry.kind not in ("op", "write") or (in_place and entry.before is None):
            raise CannotPrepare

        def now(given: torch.Tensor) -> torch.Tensor:
            if given is target and entry.before is not None:
                return self._value(entry.before, at, depth - 1).clone()
            return self._value(given, at, depth - 1)

        args, kwargs = map_tensors(entry.args, now), map_tensors(entry.kwargs, now)
        made = self._called(entry, args, kwargs)
        if in_place:
            whole = written_to(args, kwargs)
            return whole if isinstance(whole, torch.Tensor) and whole.shape == tensor.shape else made[0]
        recorded = tensors_in(entry.outputs)
        return made[next((i for i, t in enumerate(recorded) if t is tensor), 0)]

    def _called(self, entry: Entry, args: Any, kwargs: Any) -> list[torch.Tensor]:
        call: Any = entry.call
        if user_place(entry.stack) == self._place and self._repair.call is not None:
            call, self.repaired = self._repair.call(call), True
        if entry.rng is not None:
            entry.rng.put_back()
        made = tensors_in(call(*args, **kwargs))
        if not made:
            raise CannotPrepare
        return made


def _makes(entry: Entry, tensor: torch.Tensor) -> bool:
    """Whether the call returned this very tensor, or wrote its memory. To make another view of the same
    memory is neither."""
    if any(t is tensor for t in tensors_in(entry.outputs)):
        return True
    key = key_of(tensor)
    if entry.kind == "write" or changes_its_input(entry.call, entry.kwargs):
        return any(key_of(t) == key for t in tensors_in(written_to(entry.args, entry.kwargs)))
    given = {key_of(t) for t in tensors_in((entry.args, entry.kwargs))}
    return (
        entry.kind == "op" and key not in given and any(key_of(t) == key for t in tensors_in(entry.outputs))
    )
