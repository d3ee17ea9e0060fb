"""What a step made is let go when its tape alone still holds it: a model may return gigabytes.

The tape keeps its shape: a stand-in without memory takes the place of each, wherever the tape has it, and
counts as changed since. A replay makes the real one again.
"""

from __future__ import annotations

import functools
import itertools
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from nanwatch.watching.tape import Entry, Tape, map_tensors, tensors_in

LARGE_BYTES = 2**24
SIMPLE = frozenset((Tensor, torch.nn.Parameter, int, float, bool, str, type(None)))
"""Most arguments: nothing is in them."""
NO_VERSION = -3
"""Less a version: one that no tensor has. (Twice less gives the version again.)"""


def let_go(tape: Tape) -> bool:
    """Whether all that is large could be let go: what the program, or its graph, still holds stays."""
    if tape.looked_at != len(tape.made):
        note_large(tape)
    if tape.large:
        alive = _let_go_of(tape, list(tape.large), tape.let_go_until)
        tape.large = {key: tape.made[key].nbytes for key in alive}
        if alive:
            return False
    tape.let_go_until = len(tape.entries)
    return True


def let_go_of(tape: Tape, first: int, last: int) -> None:
    """All that these entries of a step under way made, however small: its graph goes with it."""
    note_large(tape)
    entries = tape.entries[first:last]
    made = {id(t): None for e in entries for t, _ in e.made if not t._backward_hooks and _is_made_again(t)}
    _let_go_of(tape, list(made), first)
    tape.large = {key: size for key, size in tape.large.items() if key in tape.made}


def _let_go_of(tape: Tape, keys: list[int], first: int = 0) -> list[int]:
    """Those that somebody else holds, too, and that stay. `first`: the first entry that has any of them."""
    if not keys:
        return []
    stand_ins = _without_memory([tape.made[key] for key in keys])
    references = [weakref.ref(tape.made[key]) for key in keys]
    _put_in_place(tape, dict(zip(keys, stand_ins, strict=True)), first)
    pairs = zip(stand_ins, references, strict=True)
    alive = {id(stand_in): tensor for stand_in, ref in pairs if (tensor := ref()) is not None}
    if alive:
        _put_in_place(tape, alive, first)
    tape.stand_ins += [tensor for tensor in stand_ins if id(tensor) not in alive]
    unused = [tensor for tensor in stand_ins if id(tensor) in alive]
    del stand_ins, pairs
    use_again(unused)
    tape.looked_at = len(tape.made)
    return list(map(id, alive.values()))


def note_large(tape: Tape) -> None:
    """Once for each tensor: they are asked about in every step."""
    for key, tensor in itertools.islice(tape.made.items(), tape.looked_at, None):
        try:
            size = tensor.nbytes if type(tensor) is Tensor else 0
        except RuntimeError:  # it is not known
            continue
        if size >= LARGE_BYTES and _is_made_again(tensor):
            tape.large[key] = size
    tape.looked_at = len(tape.made)


def _is_made_again(tensor: Tensor) -> bool:
    """By a replay: what is not differentiable may be carried on elsewhere."""
    if type(tensor) is not Tensor or tensor.is_meta or tensor.is_nested:
        return False
    return tensor.layout is torch.strided and has_graph(tensor)


def has_graph(tensor: Tensor) -> bool:
    try:
        return tensor.requires_grad and tensor.grad_fn is not None
    except RuntimeError:  # a view whose base was changed in place without autograd
        return False


def _without_memory(tensors: list[Tensor]) -> list[Tensor]:
    """Of the same size and type, and with a history."""
    return [
        spare.pop() if (spare := _spare.get((tensor.dtype, tensor.shape))) else _new_stand_in(tensor)
        for tensor in tensors
    ]


def _new_stand_in(tensor: Tensor) -> Tensor:
    with torch.enable_grad():
        return _leaf(tensor.dtype).expand(tensor.shape)


def use_again(stand_ins: list[Tensor]) -> None:
    """Of a tape that is gone: steps mostly need the same ones, which take longer to make than all the rest.
    What somebody else holds, or would be too much to keep, goes."""
    while stand_ins:
        tensor = stand_ins.pop()
        spare = _spare.setdefault((tensor.dtype, tensor.shape), [])
        if sys.getrefcount(tensor) == HELD_HERE and len(spare) < MOST_SPARE and len(_spare) <= MOST_KINDS:
            spare.append(tensor)


_spare: dict[tuple[torch.dtype, torch.Size], list[Tensor]] = {}
HELD_HERE = 2
"""References that Python counts to something that only one variable holds."""
MOST_SPARE = MOST_KINDS = 16


@functools.cache
def _leaf(dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):
        return torch.empty((), dtype=dtype, device="meta", requires_grad=True)


def _put_in_place(tape: Tape, others: Mapping[int, Tensor], first: int = 0) -> None:
    """`others`: id of a tensor -> what the tape shall have instead. Containers that a model was given are the
    program's own and stay as they are: what is in them is held by it."""

    def other(value: Any) -> Any:
        return others.get(id(value), value) if isinstance(value, Tensor) else value

    def also_inside(value: Any) -> Any:
        return map_tensors(value, other) if isinstance(value, (list, tuple)) else other(value)

    untouched = others.keys().isdisjoint
    for entry in tape.entries[first:]:
        args, kwargs = entry.args, entry.kwargs
        of_argument = other if entry.kind == "module" else also_inside
        if not (untouched(map(id, args)) and SIMPLE.issuperset(map(type, args))):
            entry.args = tuple(map(of_argument, args))
        if kwargs and not (
            untouched(map(id, kwargs.values())) and SIMPLE.issuperset(map(type, kwargs.values()))
        ):
            entry.kwargs = {name: of_argument(value) for name, value in kwargs.items()}
        if entry.unscaled is not None:
            entry.unscaled = other(entry.unscaled)
        if entry.made and any(id(tensor) in others for tensor, _ in entry.made):
            entry.outputs = _outputs(entry, other)
            entry.made = [
                (now, version if now is was else NO_VERSION - version)
                for was, version in entry.made
                for now in (other(was),)
            ]
    for key, now in others.items():
        tape.made.pop(key, None)
        tape.made[id(now)] = now


def _outputs(entry: Entry, other: Callable[[Any], Any]) -> Any:
    if isinstance(entry.outputs, Tensor):
        return other(entry.outputs)
    made = tensors_in(entry.outputs)
    if entry.functional or all(other(tensor) is tensor for tensor in made):
        return entry.outputs
    return [other(tensor) for tensor in made]
