"""What calling a module changes in it: learned from its first call, and copied before each later one.

A buffer, or a tensor that is a plain attribute, is changed in place, or another one takes its place, as that
of any attribute.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.lazy import LazyModuleMixin

from nanwatch.watching.contents import changed, held_by, inside, undo
from nanwatch.watching.randomness import put_state, states_of
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import PLAIN, Entry
from nanwatch.watching.values import is_plain, is_small, put_value

FIRST_COPY_BYTES = 2**30
"""Tensors are copied before a module's first call, to learn which of them it changes, up to this size."""
LARGE_BYTES = 2**20
"""Whole numbers and marks of this size are not: quantised weights, which no call changes. Whether one does is
told by torch's counting of writes."""
CACHE_BYTES = 2**24
"""Copied before each call without gradients: a cache of gigabytes, written into by each token that is
generated, would take longer to copy than the model takes."""

MOST_HELD = 1000
"""Things in the lists, dicts and objects of a model that are noted before each call."""

MOST_LOOKS = 3
"""Calls of a module that make something new in it, and are no lesson yet."""

MISSING = object()
LAZY = -1
"""In the place of a number of parameters: not known yet."""
OF_EVERY_MODULE = frozenset(nn.Module().__dict__)


@dataclass(frozen=True)
class Changing:
    """What calling a module changes in it."""

    tensors: list[tuple[weakref.ref[nn.Module], str]]
    attributes: list[tuple[weakref.ref[nn.Module], str]]
    containers: list[tuple[weakref.ref[nn.Module], str]]
    generators: list[Any]
    """Generators of its own, which it may draw from."""
    is_all: bool
    """Else the call has made something new, which the next one may change."""

    def and_also(self, other: Changing) -> Changing:
        """What either call has shown; `is_all` as this one has it."""
        return Changing(
            list(dict.fromkeys([*self.tensors, *other.tensors])),
            list(dict.fromkeys([*self.attributes, *other.attributes])),
            list(dict.fromkeys([*self.containers, *other.containers])),
            list({id(g): g for g in (*self.generators, *other.generators)}.values()),
            self.is_all,
        )

    @property
    def anything(self) -> bool:
        return bool(self.tensors or self.attributes or self.containers or self.generators)


def tensor_of(owner: nn.Module, name: str) -> torch.Tensor | None:
    """The buffer of this name, or the tensor that is a plain attribute."""
    if name in owner._buffers:
        return owner._buffers[name]
    value = owner.__dict__.get(name)
    return value if isinstance(value, torch.Tensor) else None


def put_tensor(owner: nn.Module, name: str, value: torch.Tensor | None) -> None:
    """Another tensor under this name."""
    if name in owner._buffers:
        owner._buffers[name] = value
    else:
        owner.__dict__[name] = value


def attribute_of(owner: nn.Module, name: str) -> Any:
    """A plain attribute, or a buffer."""
    return owner._buffers[name] if name in owner._buffers else owner.__dict__.get(name, MISSING)


def put_attribute(owner: nn.Module, name: str, value: Any) -> None:
    if value is MISSING:
        (owner._buffers if name in owner._buffers else owner.__dict__).pop(name, None)
    elif name in owner._buffers:
        owner._buffers[name] = value
    else:
        owner.__dict__[name] = value


def note_everything(entry: Entry, module: nn.Module) -> None:
    """Before a module's first call: all that it may change."""
    owners = every_module(module)
    large = [(o, n) for o, n in _tensors(owners) if _is_counted(tensor_of(o, n))]
    entry.uncopied = [(o, n, t._version) for o, n in large if (t := tensor_of(o, n)) is not None]
    left_out = {(id(owner), name) for owner, name in large}
    entry.buffers = _copies((o, n) for o, n in _tensors(owners) if (id(o), n) not in left_out)
    noted = [t for o, n, _ in entry.buffers if (t := tensor_of(o, n)) is not None and not t.is_inference()]
    entry.small = {id(t): t._version for t in noted if is_small(t)}
    entry.owners = [(owner, LAZY if _is_still_lazy(owner) else len(owner._parameters)) for owner in owners]
    entry.attributes = [
        (owner, name, attribute_of(owner, name))
        for owner, parameters in entry.owners
        if parameters != LAZY
        for name in own_names(owner)
    ]
    values = [value for _, _, value in entry.attributes]
    apart = _memory_of(_tensors(owners))
    entry.containers = held_by(values, apart=apart)
    entry.generators = [*entry.generators, *states_of(inside(values, MOST_HELD))]


def note_what_changes(entry: Entry, changing: Changing) -> None:
    """Before a later call."""
    if changing.generators:
        entry.generators = [*entry.generators, *states_of(changing.generators)]
    if changing.tensors:
        entry.buffers = _copies(
            _living(changing.tensors), FIRST_COPY_BYTES if entry.context.grad else CACHE_BYTES
        )
    if changing.containers or changing.attributes:
        names = _living([*changing.containers, *changing.attributes])
        values = [attribute_of(owner, name) for owner, name in names]
        apart = _memory_of(_living([*changing.tensors, *changing.attributes]))
        entry.containers = held_by(values, MOST_HELD, apart)
    if changing.attributes:
        living = list(_living(changing.attributes))
        entry.attributes = [(owner, name, attribute_of(owner, name)) for owner, name in living]
        small = [(owner, name) for owner, name in living if is_small(attribute_of(owner, name))]
        entry.buffers = [*entry.buffers, *_copies(small)]  # what one call sets, another may change in place


def what_changed(entry: Entry) -> Changing:
    """Of all that was noted before a module's first call; what did not change is forgotten."""
    noted, entry.containers = entry.attributes, changed(h[:2] for h in entry.containers)
    appeared, has_grown = _what_appeared(entry)
    entry.attributes = [a for a in noted if attribute_of(a[0], a[1]) is not a[2]]
    named = {(id(owner), name) for owner, name, _ in entry.attributes}
    entry.buffers = [
        (owner, name, before)
        for owner, name, before in entry.buffers
        if (id(owner), name) not in named
        and (not _same(tensor_of(owner, name), before) or _was_written(entry, owner, name))
    ]
    written = [(o, n) for o, n, then in entry.uncopied if (id(o), n) not in named and _version(o, n) != then]
    entry.small, entry.uncopied = None, ()
    touched = {id(held[0]) for held in entry.containers}
    filled = [a for a in noted if touched and any(id(c) in touched for c, _ in held_by([a[2]]))]
    own = [g for g, _ in entry.generators if all(g is not a for a in (*entry.args, *entry.kwargs.values()))]
    tensors, attributes, containers = (
        [(weakref.ref(owner), name) for owner, name, _ in found]
        for found in (entry.buffers, entry.attributes, filled)
    )
    tensors += [(weakref.ref(owner), name) for owner, name in written]
    if not has_grown:  # else it was built by this call, and stays so
        entry.attributes += [(owner, name, MISSING) for owner, name in appeared]
    entry.owners = ()
    replaced = any(_may_be_filled(attribute_of(owner, name)) for owner, name, _ in entry.attributes)
    return Changing(tensors, attributes, containers, own, not (appeared or has_grown or replaced))


def _may_be_filled(value: Any) -> bool:
    """What a call has put there, and the next one may fill: no number, nor a tensor that is copied anyway."""
    return value is not MISSING and not isinstance(value, PLAIN) and not is_small(value)


def _was_written(entry: Entry, owner: nn.Module, name: str) -> bool:
    """With the same values, by chance: a warm-up with zeros. (torch does not count what BatchNorm writes.)"""
    if isinstance(owner, _NormBase):
        return owner.training and owner.track_running_stats
    tensor = tensor_of(owner, name)
    then = entry.small.get(id(tensor)) if entry.small is not None else None
    return then is not None and tensor is not None and tensor._version != then


def _is_counted(tensor: torch.Tensor | None) -> bool:
    """Large, of whole numbers, and torch counts what is written there."""
    if tensor is None or tensor.is_floating_point() or tensor.is_complex() or tensor.is_inference():
        return False
    return tensor.numel() * tensor.element_size() > LARGE_BYTES


def _version(owner: nn.Module, name: str) -> int | None:
    tensor = tensor_of(owner, name)
    return None if tensor is None or tensor.is_inference() else tensor._version


def _what_appeared(entry: Entry) -> tuple[list[tuple[nn.Module, str]], bool]:
    """Names that a module's first call has made, and whether it has made modules or weights."""
    assert isinstance(entry.call, nn.Module)
    then = {id(owner): parameters for owner, parameters in entry.owners}
    now = every_module(entry.call)
    has_grown = any(then.get(id(owner)) != len(owner._parameters) for owner in now)
    known = {(id(owner), name) for owner, name, _ in entry.attributes}
    names = ((owner, name) for owner in now if then.get(id(owner), LAZY) != LAZY for name in own_names(owner))
    return [(owner, name) for owner, name in names if (id(owner), name) not in known], has_grown


def put_state_back(entries: Iterable[Entry], numbers_too: bool = True) -> None:
    """BatchNorm's statistics, counters, generators and the like, as they were before these calls, the last
    one first. What refuses to go back stays as it is. Without `numbers_too` only tensors: a model may draw
    its own data, or count through it, and would be given the same again."""
    with torch.no_grad():
        for entry in entries:
            for owner, name, value in entry.attributes:
                if numbers_too or isinstance(value, torch.Tensor):
                    with contextlib.suppress(Exception):
                        put_attribute(owner, name, value)
            for owner, name, before in entry.buffers:
                with contextlib.suppress(Exception):
                    put_value(tensor_of(owner, name), before)
            for held in entry.containers if numbers_too else ():
                with contextlib.suppress(Exception):
                    undo(*held)
            for generator, state in entry.generators if numbers_too and entry.kind == "module" else ():
                put_state(generator, state)


def every_module(module: nn.Module) -> list[nn.Module]:
    """Also those that it, or one in it, keeps in plain lists, dicts and objects, out of torch's sight."""
    found = dict.fromkeys(module.modules())
    waiting = list(found)
    while waiting:
        owner = waiting.pop()
        kept = [v for name, v in list(owner.__dict__.items()) if name not in OF_EVERY_MODULE]
        for value in inside(kept, MOST_HELD):
            if isinstance(value, nn.Module) and value not in found:
                new = [m for m in value.modules() if m not in found]
                found |= dict.fromkeys(new)
                waiting += new
    return list(found)


def _tensors(owners: Iterable[nn.Module]) -> Iterator[tuple[nn.Module, str]]:
    for owner in owners:
        for name, buffer in owner._buffers.items():
            if buffer is not None and buffer.layout is torch.strided and not buffer.is_nested:
                yield owner, name
        for name, value in owner.__dict__.items():
            if is_plain(value):
                yield owner, name


def _memory_of(names: Iterable[tuple[nn.Module, str]]) -> set[int]:
    found = (tensor_of(owner, name) for owner, name in names)
    return {key_of(tensor) for tensor in found if tensor is not None}


def own_names(owner: nn.Module) -> list[str]:
    """What a call may set: attributes of its own, and buffers."""
    attributes = [name for name in owner.__dict__ if name not in OF_EVERY_MODULE]
    return attributes + [name for name, _ in owner._buffers.items()]


def _is_still_lazy(owner: nn.Module) -> bool:
    """This call gives it its sizes, for good: the weights that it makes stay too."""
    return isinstance(owner, LazyModuleMixin) and bool(owner.has_uninitialized_params())


def _living(references: list[tuple[weakref.ref[nn.Module], str]]) -> Iterator[tuple[nn.Module, str]]:
    for reference, name in references:
        owner = reference()
        if owner is not None:
            yield owner, name


def _copies(
    names: Iterable[tuple[nn.Module, str]], most: int = FIRST_COPY_BYTES
) -> list[tuple[nn.Module, str, torch.Tensor]]:
    taken: list[tuple[nn.Module, str, torch.Tensor]] = []
    size = 0
    with torch.no_grad():
        for owner, name in names:
            tensor = tensor_of(owner, name)
            if tensor is None:
                continue
            size += tensor.numel() * tensor.element_size()
            if size > most:
                return taken
            with contextlib.suppress(RuntimeError):  # dtypes that torch can hold and not copy
                taken.append((owner, name, tensor.detach().clone()))
    return taken


def _same(now: torch.Tensor | None, before: torch.Tensor) -> bool:
    if now is None or now.shape != before.shape or now.dtype != before.dtype:
        return False
    if now.is_meta:
        return True  # without values there is nothing to put back
    try:
        return bool(torch.equal(now, before)) or bool(
            ((now == before) | ((now != now) & (before != before))).all()
        )
    except RuntimeError:  # nor compare
        return True
