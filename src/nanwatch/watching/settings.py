"""Numbers and words that a model's code reads without being given them: attributes of its modules, variables
of its file, entries of a configuration there. A program may set one for a call and put it back afterwards:
each call has them on record, so that a replay has those of the call.

The program's own code is not run for this: no attribute is asked for that a class could make up.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter, call
from typing import Any

import torch
from torch import nn

from nanwatch.watching.own_values import dict_of
from nanwatch.watching.stack import is_library

PLAIN = frozenset((bool, int, float, complex, str))
"""Not None, in the place of which something may be made once and kept."""
OF_EVERY_MODULE = frozenset(nn.Module().__dict__)
MOST = 128
"""They are read at each call of a model."""
MOST_OF_ONE = 32
MOST_KEYS = 1000
"""A dict with more is a table, and no configuration."""
DEEPEST_FUNCTION = 3
DEEPEST_CONFIGURATION = 2
NO_CONFIGURATION = (nn.Module, torch.Tensor, torch.optim.Optimizer)

Root = weakref.ref[Any]
"""A module, a class or a file of the program, or a function, for the variables of its file."""
Values = tuple[Any, ...]


class Place:
    """Some values that are kept together. Nothing of the program's is held: a configuration is found again
    each time from what has it."""

    __slots__ = ("names", "root", "trail")

    def __init__(self, root: Root, trail: tuple[str, ...], names: tuple[str, ...]) -> None:
        self.root, self.trail, self.names = root, trail, names

    def held(self) -> Mapping[str, Any] | None:
        living = self.root()
        if living is None:
            return None
        found: Any = living.__globals__ if type(living) is types.FunctionType else living.__dict__
        for name in self.trail:
            value = found.get(name)
            found = value if type(value) is dict else dict_of(value)
            if found is None:
                return None
        return found  # type: ignore[no-any-return]

    def put(self, name: str, value: Any) -> None:
        held, living = self.held(), self.root()
        if isinstance(held, dict):
            held[name] = value
        elif isinstance(living, type) and not self.trail:
            type.__setattr__(living, name, value)


class Settings:
    """Of one model: where they are."""

    def __init__(self, model: nn.Module) -> None:
        self._owners: list[Root] = []
        self._names: list[str] = []
        """What modules have themselves, one by one: most of it, and read in one go."""
        self._places: list[Place] = []
        """Of all else."""
        self._room = MOST
        self._seen: set[int] = set()
        self._noted: set[tuple[int, tuple[str, ...], str]] = set()
        """Whose, where and what: many functions read the same variable."""
        modules = list(model.modules())
        own = [module for module in modules if _is_of_the_program(type(module).forward)]
        for kind in dict.fromkeys(map(type, own)):
            for base in filter(_is_class_of_the_program, kind.__mro__):
                for value in vars(base).values():
                    self._note_what_it_reads(_function_in(value), DEEPEST_FUNCTION)
        for module in own:
            attributes = {n: v for n, v in vars(module).items() if n not in OF_EVERY_MODULE}
            self._note(weakref.ref(module), (), attributes, attributes)
            for name, value in attributes.items():
                self._note_configuration(weakref.ref(module), (name,), value)
        for module in [m for m in modules if not _is_of_the_program(type(m).forward)]:
            held = vars(module)
            numbers = [n for n, v in held.items() if type(v) is float and n not in OF_EVERY_MODULE]
            self._note(weakref.ref(module), (), held, numbers)  # eps, p, momentum: not sizes

    def __bool__(self) -> bool:
        return bool(self._owners or self._places)

    def now(self) -> Values:
        """Asked at each call of the model."""
        try:
            found = list(map(dict.get, map(_attributes_of, map(call, self._owners)), self._names))
        except AttributeError:  # an owner is gone
            held = [getattr(owner(), "__dict__", {}) for owner in self._owners]
            found = list(map(dict.get, held, self._names))
        for place in self._places:
            found += map((place.held() or {}).get, place.names)
        return tuple(found)

    @contextlib.contextmanager
    def as_they_were(self, values: Values) -> Iterator[None]:
        single = zip(self._owners, self._names, strict=True)
        places = [Place(owner, (), (name,)) for owner, name in single] + self._places
        undo: list[tuple[Place, str, Any]] = []
        then = iter(values)
        try:
            for place in places:
                held = place.held() or {}
                for name, was in zip(place.names, then, strict=False):
                    if _is_plain(was) and _is_plain(held.get(name)):
                        undo.append((place, name, held[name]))
                        place.put(name, was)
            yield
        finally:
            for place, name, now in undo:
                place.put(name, now)

    def _note(
        self, root: Root, trail: tuple[str, ...], held: Mapping[str, Any], names: Iterable[str]
    ) -> None:
        living: Any = root()
        owner = id(living.__globals__ if type(living) is types.FunctionType else living)
        read = [n for n in names if type(n) is str and not n.startswith("__") and _is_plain(held[n])]
        read = [n for n in read if (owner, trail, n) not in self._noted][: min(self._room, MOST_OF_ONE)]
        self._noted.update((owner, trail, name) for name in read)
        self._room -= len(read)
        if isinstance(living, nn.Module) and not trail:
            self._owners += [root] * len(read)
            self._names += read
        elif read:
            self._places.append(Place(root, trail, tuple(read)))

    def _note_configuration(
        self, root: Root, trail: tuple[str, ...], value: Any, names: frozenset[str] = frozenset()
    ) -> None:
        """`names`: what the code that reads it asks of something, where all of it would be too much."""
        kind = type(value)
        if self._room <= 0 or kind in PLAIN or kind is types.FunctionType or id(value) in self._seen:
            return
        self._seen.add(id(value))
        if kind is types.ModuleType or issubclass(kind, type):
            if _is_of_a_program_file(value):
                held = value.__dict__
                self._note(weakref.ref(value), (), held, [n for n in names if n in held])
            return
        if issubclass(kind, NO_CONFIGURATION) or callable(value) or not _may_be_a_configuration(kind):
            return
        held = value if kind is dict else dict_of(value)
        if held is None or len(held) > MOST_KEYS:
            return
        held = dict(held)  # in one go: another thread may write to it
        if kind is not dict or all(map(_is_plain, held.values())):  # else a store, whose numbers are kept so
            self._note(root, trail, held, list(held))
        if len(trail) < DEEPEST_CONFIGURATION:
            for name, inner in held.items():
                if type(name) is str:
                    self._note_configuration(root, (*trail, name), inner)

    def _note_what_it_reads(self, function: Any, depth: int) -> None:
        if id(function) in self._seen or not _is_of_the_program(function):
            return
        self._seen.add(id(function))
        variables, root = function.__globals__, weakref.ref(function)
        read = frozenset(_names_in(function.__code__))
        names = sorted(n for n in read if n in variables)
        self._note(root, (), variables, names)
        for name in names:
            self._note_configuration(root, (name,), variables[name], read)
            if depth:
                self._note_what_it_reads(variables[name], depth - 1)


_attributes_of = attrgetter("__dict__")


def _is_plain(value: Any) -> bool:
    if type(value) is torch.Tensor:
        return value.dim() == 0 and not value.requires_grad
    return type(value) in PLAIN


def _function_in(value: Any) -> Any:
    """Of what a class has under a name."""
    if type(value) in (staticmethod, classmethod):
        return value.__func__
    return value.fget if type(value) is property else value


def _is_of_the_program(function: Any) -> bool:
    return type(function) is types.FunctionType and not is_library(function.__code__.co_filename)


def _is_class_of_the_program(kind: type) -> bool:
    return any(_is_of_the_program(_function_in(value)) for value in vars(kind).values())


def _may_be_a_configuration(kind: type) -> bool:
    """Of the libraries' classes few are: a pool of threads has numbers, too, and must not get old ones."""
    if kind in (dict, types.SimpleNamespace, argparse.Namespace) or dataclasses.is_dataclass(kind):
        return True
    return _is_of_a_program_file(kind) or kind.__name__.endswith("Config")


def _is_of_a_program_file(value: Any) -> bool:
    """A module, or a class: its file."""
    name = value.__dict__.get("__module__")
    if name == "__main__":
        return True  # in a notebook it has no file
    module = value if type(value) is types.ModuleType else sys.modules.get(name)
    file = None if module is None else module.__dict__.get("__file__")
    return isinstance(file, str) and not is_library(file)


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
