"""What a finished step made is let go when its tape alone still holds it: a model may return gigabytes.

The tape keeps its shape: a stand-in without memory takes the place of each, wherever the tape has it, and
counts as changed since. A replay makes the real one again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nanwatch.watching.tape import Entry, Tape, map_tensors, tensors_in

LARGE_BYTES = 2**24
NO_VERSION = -3
"""Less a version: one that no tensor has. (Twice less gives the version again.)"""


def let_go(tape: Tape) -> bool:
    """Whether all that is large could be let go: what the program, or its graph, still holds stays."""
    large = {key: tensor for key, tensor in tape.made.items() if _is_large(tensor)}
    if not large:
        return True
    stand_ins = {key: _without_memory(tensor) for key, tensor in large.items()}
    references = {id(stand_ins[key]): weakref.ref(tensor) for key, tensor in large.items()}
    large.clear()
    if not _put_in_place(tape, stand_ins):
        return False
    alive = {key: tensor for key, ref in references.items() if (tensor := ref()) is not None}
    if alive:
        _put_in_place(tape, alive)
    return not alive


def _is_large(tensor: Tensor) -> bool:
    """And of a kind that a replay makes again: what is not differentiable may be carried on elsewhere."""
    return (
        type(tensor) is Tensor
        and tensor.requires_grad
        and tensor.layout is torch.strided
        and tensor.nbytes >= LARGE_BYTES
        and not tensor.is_leaf
    )


def _without_memory(tensor: Tensor) -> Tensor:
    """Of the same size and type, and with a history."""
    with torch.enable_grad():
        leaf = torch.empty((), dtype=tensor.dtype, device="meta", requires_grad=True)
        return leaf.expand(tensor.shape)


class _Rewritten(NamedTuple):
    entry: Entry
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any
    made: list[tuple[Tensor, int]]


def _put_in_place(tape: Tape, others: Mapping[int, Tensor]) -> bool:
    """`others`: id of a tensor -> what the tape shall have instead. False if a call cannot be rewritten."""

    def other(tensor: Tensor) -> Tensor:
        return others.get(id(tensor), tensor)

    try:
        rewritten = [_rewritten(entry, other) for entry in tape.entries]
    except Exception:  # a container of the program's own that cannot be copied
        return False
    for entry, args, kwargs, outputs, made in rewritten:
        entry.args, entry.kwargs, entry.outputs, entry.made = args, kwargs, outputs, made
    tape.made = {id(now): now for now in map(other, tape.made.values())}
    return True


def _rewritten(entry: Entry, other: Callable[[Tensor], Tensor]) -> _Rewritten:
    outputs = entry.outputs
    if isinstance(outputs, Tensor):
        outputs = other(outputs)
    elif not entry.functional and any(other(t) is not t for t in tensors_in(outputs)):
        outputs = [other(t) for t in tensors_in(outputs)]
    made = [
        (now, version if now is was else NO_VERSION - version)
        for was, version in entry.made
        for now in (other(was),)
    ]
    args, kwargs = map_tensors(entry.args, other), map_tensors(entry.kwargs, other)
    return _Rewritten(entry, args, kwargs, outputs, made)
