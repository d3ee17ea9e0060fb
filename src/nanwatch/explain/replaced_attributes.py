"""A tensor that a model carries from call to call in an attribute, and that is another one than its last call
left there, though no call of this thread made it or was given it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, tensors_of_call

if TYPE_CHECKING:
    from nanwatch.explain.case import Case


@dataclass(frozen=True)
class Replaced:
    name: str
    tensor: torch.Tensor
    """What is there now."""


def replaced_attributes(case: Case) -> list[Replaced]:
    tapes = (*case.trouble.earlier, case.tape)
    calls = [e for tape in tapes for e in tape.entries if e.kind == "module"]
    known = {id(t) for tape in tapes for e in tape.entries for t in _passed(e)}
    found = []
    for place, call in enumerate(calls):
        before = next((e for e in reversed(calls[:place]) if e.call is call.call), None)
        if before is not None:
            found += [r for r in _replaced_between(before, call) if id(r.tensor) not in known]
    arrivals = case.trouble.arrivals
    return [r for r in found if arrivals is None or arrivals.get(r.tensor) is None]


def _passed(entry: Entry) -> list[torch.Tensor]:
    return [*tensors_of_call(entry.args, entry.kwargs), *(t for t, _ in entry.made)]


def _replaced_between(before: Entry, call: Entry) -> list[Replaced]:
    left = {(id(owner), name): tensor() for owner, name, tensor in before.left}
    return [
        Replaced(name, value)
        for owner, name, value in call.attributes
        if isinstance(value, torch.Tensor) and left.get((id(owner), name), value) is not value
    ]


def read_by_birth(case: Case, replaced: Replaced) -> bool:
    """Whether the birth op, or an op near it, read this memory."""
    if case.birth is None:
        return False
    key = key_of(replaced.tensor)
    if any(o.key == key for o in case.birth.op.inputs):
        return True
    node = case.lineage.node_of(case.birth.op)
    return node is not None and any(k == key for n in case.lineage.upstream(node, 20) for _, _, k in n.inputs)
