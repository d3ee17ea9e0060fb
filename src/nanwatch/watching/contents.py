"""What the containers among a call's arguments held when it was made: it may pop from them, append to them,
use an iterator up or replace the attributes of an object. References and shallow copies only."""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy
import torch

from nanwatch.signals import let_through
from nanwatch.watching.own_values import dict_of
from nanwatch.watching.stack import is_library
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import PLAIN, map_tensors
from nanwatch.watching.values import Value, is_small, put_value

MOST_LOOKED_AT = 500
"""Values looked at in the arguments of one call."""
LONGEST = 10_000
"""Containers with more in them are not copied."""
MOST_BYTES = 2**26
"""Of tensors in containers, for one call."""

LOOKED_PAST = (torch.Tensor, *PLAIN)
"""Arguments of these kinds hold nothing that a call could change."""
_NOTHING = object()
KEYED = (dict, OrderedDict, defaultdict)
LISTED = (list, deque)
CONTAINERS = frozenset((*KEYED, Counter, *LISTED, set))
_EMPTY: tuple[Any, ...] = ([], (), range(0), "", {}, {}.values(), {}.items(), set())
REWINDABLE = tuple(type(iter(empty)) for empty in _EMPTY)
"""Iterators of which a copy goes its own way."""


@dataclass(slots=True)
class Contents:
    """Of one call."""

    held: list[tuple[Any, Any]] = field(default_factory=list)
    """(container, what it held then); an object is stood for by its `__dict__`."""
    objects: list[dict[str, Any]] = field(default_factory=list)
    """Those of the containers that are the attributes of an object."""
    iterators: list[tuple[Any, Any]] = field(default_factory=list)
    """(iterator, a copy of it)."""
    used_up: str | None = None
    """The kind of an iterator that cannot be copied."""

    def loaded(self, stand_in: Callable[[torch.Tensor], Any]) -> Callable[[], None]:
        """Fill the containers with what they held then; calling what is returned undoes it."""
        now = [(container, _copy_of(container)) for container, _ in self.held]
        for container, held in self.held:
            _fill(container, held)
        for attributes in self.objects:
            _fill(attributes, {name: map_tensors(value, stand_in) for name, value in attributes.items()})

        def undo() -> None:
            for container, held in now:
                _fill(container, held)

        return undo

    def rewound(self, value: Any) -> Any:
        """An argument with a fresh copy in the place of an iterator that it is, or that it holds."""
        if not self.iterators:
            return value
        for iterator, kept in self.iterators:
            if value is iterator:
                return copy.copy(kept)
        if type(value) is tuple or type(value) is list:
            return type(value)(self.rewound(item) for item in value)
        if type(value) is dict:
            return {key: self.rewound(item) for key, item in value.items()}
        return value


def contents_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Contents | None:
    """None for the usual call, whose arguments are tensors and numbers."""
    waiting = [v for v in (*args, *kwargs.values()) if not issubclass(type(v), LOOKED_PAST)]
    if not waiting:
        return None
    contents = Contents()
    seen: set[int] = set()
    while waiting and len(seen) < MOST_LOOKED_AT:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        inner = _note(value, contents)
        waiting += [v for v in inner if not issubclass(type(v), LOOKED_PAST)]
    return contents


def _note(value: Any, contents: Contents) -> list[Any]:
    """Write down what `value` holds; what is in it, to be looked at too."""
    kind = type(value)
    if kind is tuple:
        return list(value[:LONGEST])
    if kind in KEYED or kind in LISTED or kind is set:
        if len(value) > LONGEST:
            return []
        contents.held.append((value, _copy_of(value)))
        return list(value.values() if kind in KEYED else value)
    if issubclass(kind, Iterator):
        if kind in REWINDABLE:
            contents.iterators.append((value, copy.copy(value)))
        else:
            contents.used_up = kind.__name__
        return []
    attributes = dict_of(value)
    if attributes is None or callable(value) or len(attributes) > LONGEST:
        return []
    contents.held.append((attributes, dict(attributes)))
    contents.objects.append(attributes)
    return list(attributes.values())


def _copy_of(container: Any) -> Any:
    if isinstance(container, torch.Tensor):
        return Value(container._version, container.detach().clone())
    return dict(container) if isinstance(container, dict) else container.copy()


def _fill(container: Any, held: Any) -> None:
    if isinstance(container, torch.Tensor):
        with torch.no_grad():
            if container.shape != held.copy.shape:
                container.data = held.copy  # it was resized
            put_value(container, held.copy)
        return
    container.clear()
    container.extend(held) if isinstance(container, LISTED) else container.update(held)


Held = list[tuple[Any, Any]]
"""(container, what it held)."""


def held_by(
    values: Iterable[Any], most: int = LONGEST, apart: Container[int] = (), tensors: bool = True
) -> Held:
    """What the containers among these values hold, and those in them: dicts, lists, sets, the attributes of
    objects of the program's own classes, and small tensors in them; all in all no more than `most` things.
    `apart`: the memory of tensors that are looked after elsewhere; without `tensors` that of none is read."""
    found: Held = []
    room = MOST_BYTES
    for value in inside((v for v in values if not isinstance(v, torch.Tensor)), most):
        if not isinstance(value, torch.Tensor):
            if _is_container(value):
                found.append((value, _copy_of(value)))
        elif tensors and _is_value(value) and value.nbytes <= room and key_of(value) not in apart:
            room -= value.nbytes
            found.append((value, _copy_of(value)))
    return found


def all_held_by(values: Iterable[Any], apart: Container[int]) -> Held:
    """The same without a limit, tensors of any kind and size too, also in objects of libraries. What cannot
    be put back into a tensor is put back by a copy in its place."""
    found: Held = []
    for value in inside(values, sys.maxsize, of_libraries=True):
        if _is_container(value):
            found.append((value, _with_copies(value, apart)))
        elif _can_be_refilled(value) and key_of(value) not in apart:
            found.append((value, _copy_of(value)))
    return found


def _with_copies(container: Any, apart: Container[int]) -> Any:
    copied = _copy_of(container)
    if isinstance(copied, (dict, *LISTED)):
        for key, value in list(copied.items() if isinstance(copied, dict) else enumerate(copied)):
            if isinstance(value, torch.Tensor) and not _can_be_refilled(value) and key_of(value) not in apart:
                copied[key] = value.detach().clone()
    return copied


def _can_be_refilled(value: Any) -> bool:
    """A tensor of torch's own classes, of which no two values share their memory."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        return False
    overlaps = any(step == 0 and size > 1 for step, size in zip(value.stride(), value.shape, strict=True))
    return not (overlaps or value.is_nested or value.is_inference() or value.is_meta)


def inside(values: Iterable[Any], most: int, of_libraries: bool = False) -> Iterator[Any]:
    """These values and what is in them, each once, no more than `most` in containers. An object is stood for
    by its `__dict__`. Of exactly these types: nothing of the program's own is run here. Not what is in
    tensors and modules."""
    seen: set[int] = set()
    waiting = list(values)
    while waiting and most > 0:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        kind = type(value)
        if issubclass(kind, _NO_CONTAINERS):
            if not issubclass(kind, PLAIN) or issubclass(kind, torch.nn.Module):
                yield value
            continue
        container = value if issubclass(kind, tuple) else _container(value, of_libraries)
        if container is None:
            yield value
        elif len(container) <= most:
            most -= len(container) + 1
            yield container
            waiting += container.values() if isinstance(container, dict) else container


def _is_container(value: Any) -> bool:
    kind = type(value)
    return any(kind is known for known in CONTAINERS)  # there are classes that cannot be hashed, nor compared


def _is_value(value: Any) -> bool:
    return is_small(value) and _is_owned(value)


def _is_owned(tensor: torch.Tensor) -> bool:
    """In memory of torch's own: what lies in foreign memory may have lost it."""
    return not tensor.is_inference() and not tensor.is_meta and bool(tensor.untyped_storage().resizable())


_NO_CONTAINERS = (torch.Tensor, torch.nn.Module, numpy.ndarray, *PLAIN)


def _container(value: Any, of_libraries: bool = False) -> Any:
    kind = type(value)
    if _is_container(value):
        return value
    try:
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if file is None or callable(value) or (is_library(file) and not of_libraries):
            return None
        if of_libraries and kind.__module__.partition(".")[0] in sys.stdlib_module_names | {"torch", "numpy"}:
            return None
        attributes = object.__getattribute__(value, "__dict__")
    except Exception as error:  # a class that cannot be hashed, or whose `__dict__` is a property
        let_through(error)
        return None
    return attributes if type(attributes) is dict else None


def changed(held: Iterable[tuple[Any, Any]]) -> Held:
    """Those of the containers that hold something else now."""
    return [(container, before) for container, before in held if not holds(container, before)]


def put_contents(held: Held) -> None:
    """Tensors always: what is put into them does not count as a change."""
    for container, before in held:
        with contextlib.suppress(Exception):  # one that cannot be put back must not keep the others from it
            if isinstance(container, torch.Tensor) or not holds(container, before):
                _fill(container, before)


Changed = tuple[Any, Any, Any]
"""(container, what it held before a call, and after it)."""


def after_the_call(held: Iterable[tuple[Any, ...]]) -> list[Changed]:
    return [(container, before, _copy_of(container)) for container, before in changed(h[:2] for h in held)]


def renewed(held: tuple[Any, ...]) -> tuple[Any, ...]:
    """What it holds now is what the call has left."""
    container, before, after = held
    return held if holds(container, after) else (container, before, _copy_of(container))


def undo(container: Any, before: Any, after: Any) -> None:
    """As if that call had not been made; what others have done to the container since stays."""
    if isinstance(container, torch.Tensor) or holds(container, after):
        _fill(container, before)
        return
    if not isinstance(container, dict):
        return
    for key in {**before, **after}:
        was, then = before.get(key, _NOTHING), after.get(key, _NOTHING)
        if was is not then and container.get(key, _NOTHING) is then:
            if was is _NOTHING:
                del container[key]
            else:
                container[key] = was


def holds(container: Any, before: Any) -> bool:
    """Whether it still holds the same, in the same order."""
    if isinstance(container, torch.Tensor):
        return bool(container._version == before.version)
    if len(container) != len(before):
        return False
    if isinstance(container, dict):
        now, then = list(container.items()), before.items()
        return all(k is key and v is value for (k, v), (key, value) in zip(now, then, strict=False))
    if isinstance(container, set):
        return bool(container == before)
    return all(map(operator.is_, list(container), before))


@dataclass(slots=True, frozen=True)
class FreeVariable:
    """A variable that a function reads without being given it: of an outer function, or of its file."""

    holder: CellType | dict[str, Any]
    name: str
    value: Any

    def get(self) -> Any:
        return self.holder.cell_contents if isinstance(self.holder, CellType) else self.holder.get(self.name)

    def put(self, value: Any) -> None:
        if isinstance(self.holder, CellType):
            self.holder.cell_contents = value
        else:
            self.holder[self.name] = value


DEEPEST_FUNCTION = 8


def free_variables(call: Any, args: tuple[Any, ...]) -> list[FreeVariable]:
    """The tensors that the functions among a call and its arguments get at without being given them."""
    found: list[FreeVariable] = []
    seen: set[int] = set()
    for value in (call, *args):
        if callable(value) and not isinstance(value, torch.nn.Module):
            _look_into(value, found, seen, DEEPEST_FUNCTION)
    return found


def _look_into(function: Any, found: list[FreeVariable], seen: set[int], depth: int) -> None:
    if depth == 0 or id(function) in seen or len(seen) > MOST_LOOKED_AT:
        return
    seen.add(id(function))
    if isinstance(function, MethodType):
        function = function.__func__
    if isinstance(function, functools.partial):
        for value in (function.func, *function.args):
            _look_into(value, found, seen, depth - 1)
    if not isinstance(function, FunctionType):
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not set yet
            continue
        _note_variable(cell, name, value, found, seen, depth)
    if not is_library(function.__code__.co_filename):
        for name in _names_in(function.__code__):
            if name in function.__globals__:
                _note_variable(function.__globals__, name, function.__globals__[name], found, seen, depth)


def _note_variable(
    holder: Any, name: str, value: Any, found: list[FreeVariable], seen: set[int], depth: int
) -> None:
    if isinstance(value, (torch.Tensor, list, tuple, dict)):
        found.append(FreeVariable(holder, name, value))
    elif isinstance(value, (FunctionType, MethodType, functools.partial)):
        _look_into(value, found, seen, depth - 1)


@functools.lru_cache(maxsize=1024)
def _names_in(code: CodeType) -> tuple[str, ...]:
    """The names of globals that a function, or one defined in it, may read."""
    inner = (_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return tuple(dict.fromkeys([*code.co_names, *(name for names in inner for name in names)]))
