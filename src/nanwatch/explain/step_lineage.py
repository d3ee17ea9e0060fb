"""The lineage of a bad step: a replay under a witness, and before it what ran outside of any model.

What the program computed outside (the preparation of a batch, a mask, a change of the weights) is not run by
a replay: the calls of the tape that made what the replay was given, or that gave birth, are made once more on
copies, and stand before the ops of the replay.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

from nanwatch.explain.lineage import Lineage, Witness, user_frames
from nanwatch.replay.again import Changes
from nanwatch.replay.trace import Op
from nanwatch.tensors import numbers
from nanwatch.watching.module_calls import Scope
from nanwatch.watching.randomness import drawn_again
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, map_tensors, tensors_in, version_of
from nanwatch.watching.torch_functions import changes_its_input, written_to

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

MOST_CALLS = 100
"""Calls of the program's own code that are made once more to see where an operand came from."""

FRESH_BYTES = 2**26
"""Copies of what such calls are given may take so much memory in all."""


def lineage_of(case: Case) -> Lineage:
    """Every op of the step; without those of the program's own calls where these cannot be made again."""
    again = case.rerun(Changes(tracer=Witness), always=True)
    witness = again.tracer
    if not isinstance(witness, Witness):
        return Lineage()
    found = witness.lineage
    found.losses = [t.detach() for t in again.losses]
    try:
        _add_what_the_program_did(case, found)
    except Exception:
        return found  # its calls could not be made again: the replay is there all the same
    return found


def _add_what_the_program_did(case: Case, lineage: Lineage) -> None:
    """Before the ops of the replay: those that made the tensors it was given, and the birth if it is among
    them."""
    entries = [e for tape in (*case.trouble.earlier, case.tape) for e in tape.entries]
    op = case.located.op
    outside = op is not None and op.phase not in ("backward", "optimizer") and lineage.node_of(op) is None
    birth = _entry_at(entries, op) if outside and op is not None else None
    wanted = _leading_to(entries, birth, lineage)
    if not wanted:
        return
    repeated = _Repetition(case.tape.step)
    lineage.put_before(repeated.of(wanted), repeated.made, repeated.known)


def _entry_at(entries: list[Entry], op: Op) -> Entry | None:
    place = user_frames(op.stack)
    for entry in reversed(entries):
        frames = user_frames(entry.stack)
        if entry.kind not in ("op", "write", "apply") or not frames or place[-len(frames) :] != frames:
            continue
        if any(_bad(t) for t in tensors_in((entry.outputs, written_to(entry.args, entry.kwargs)))):
            return entry
    return None


def _bad(tensor: torch.Tensor) -> bool:
    return not numbers(tensor).finite


def _leading_to(entries: list[Entry], birth: Entry | None, lineage: Lineage) -> list[Entry]:
    """The calls of the program that made what the replay was given, and those that led to `birth`, oldest
    first."""
    wanted = {key for key, tensor in lineage.leaves.items() if not tensor.requires_grad}
    found: list[Entry] = []
    for entry in reversed(entries):
        if len(found) >= MOST_CALLS:
            break
        if entry is birth:
            pass
        elif entry.kind != "op" or entry.functional or changes_its_input(entry.call, entry.kwargs):
            continue
        elif any(t.requires_grad for t in tensors_in(entry.outputs)):
            continue  # a replay makes these
        elif not any(key_of(t) in wanted for t in tensors_in(entry.outputs)):
            continue
        found.append(entry)
        wanted |= {key_of(t) for t in tensors_in((entry.args, entry.kwargs))}
    return found[::-1]


class _Repetition:
    """Makes calls again under a witness, on copies of what they were given."""

    def __init__(self, step: int) -> None:
        self._witness = Witness(Scope())
        self._witness.step = step
        self._copies: dict[int, torch.Tensor] = {}
        self._bytes = 0
        self.made: dict[int, int] = {}
        """Identity of the program's memory -> the op of the repetition that made the same."""
        self.known: dict[int, int] = {}
        """Identity of a copy -> that of what it is a copy of."""

    def of(self, entries: list[Entry]) -> Lineage:
        for entry in entries:
            self._make(entry)
        return self._witness.lineage

    def _make(self, entry: Entry) -> None:
        if entry.before is not None:
            self._copies[id(written_to(entry.args, entry.kwargs))] = entry.before.clone()
        self._witness.base = entry.stack
        self._witness.boundary = sys._getframe()
        try:
            args, kwargs = map_tensors(entry.args, self._copy), map_tensors(entry.kwargs, self._copy)
            with drawn_again(entry.rng, entry.generators), torch.no_grad(), self._witness:
                made = entry.call(*args, **kwargs)
        except Exception:
            return
        for (was, version), now in zip(entry.made, tensors_in(made), strict=False):
            maker = self._witness.maker_of(now)
            if was.shape == now.shape and was.dtype == now.dtype and maker is not None:
                if version_of(was) != version:
                    now.copy_(was.detach())  # changed in place since: what others were given
                self._copies.setdefault(id(was), now)
                self.made[key_of(was)] = maker
                self.known[key_of(now)] = key_of(was)

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        found = self._copies.get(id(tensor))
        if found is None:
            self._bytes += tensor.numel() * tensor.element_size()
            if self._bytes > FRESH_BYTES:
                raise MemoryError
            found = self._copies[id(tensor)] = tensor.detach().clone()
            self.known[key_of(found)] = key_of(tensor)
        return found
