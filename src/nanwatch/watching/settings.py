"""Numbers and words that a model's code reads without being given them: attributes of its modules, variables
of its file, entries of a configuration there. A program may set one for a call and put it back afterwards:
each call has them on record, so that a replay has those of the call.
"""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from nanwatch.watching.stack import is_library

PLAIN = frozenset((bool, int, float, complex, str))
"""Not None, in the place of which something may be made once and kept."""
OF_EVERY_MODULE = frozenset(nn.Module().__dict__)
MOST = 64
"""They are read at each call of a model."""
MOST_OF_ONE = 32
DEEPEST_FUNCTION = 3
NO_CONFIGURATION = (type, types.ModuleType, nn.Module, torch.Tensor, torch.optim.Optimizer)

Held = dict[str, Any]
Values = tuple[tuple[Any, ...], ...]


class Settings:
    """Of one model: where they are. Holds its modules weakly."""

    def __init__(self, model: nn.Module) -> None:
        self._of_objects: list[tuple[weakref.ref[Any], tuple[str, ...]]] = []
        """Attributes, by name."""
        self._in_dicts: list[tuple[Held, tuple[str, ...]]] = []
        self._room = MOST
        self._seen: set[int] = set()
        own = [module for module in model.modules() if _is_of_the_program(type(module).forward)]
        for module in own:
            attributes = {n: v for n, v in vars(module).items() if n not in OF_EVERY_MODULE}
            self._note(attributes, attributes, module)
            for value in attributes.values():
                self._note_configuration(value)
        for kind in dict.fromkeys(map(type, own)):
            for value in vars(kind).values():
                self._note_what_it_reads(getattr(value, "__func__", value), DEEPEST_FUNCTION)

    def __bool__(self) -> bool:
        return bool(self._of_objects or self._in_dicts)

    def now(self) -> Values:
        """Asked at each call of the model: no function of ours is called for any of them."""
        found = []
        for reference, names in self._of_objects:
            living = reference()
            found.append(() if living is None else tuple(map(living.__dict__.get, names)))
        for held, names in self._in_dicts:
            found.append(tuple(map(held.get, names)))
        return tuple(found)

    @contextlib.contextmanager
    def as_they_were(self, values: Values) -> Iterator[None]:
        undo: list[tuple[Held, str, Any]] = []
        try:
            for (held, names), then in zip(self._places(), values, strict=True):
                for name, was in zip(names, then, strict=False):
                    if _is_plain(was) and _is_plain(held.get(name)):
                        undo.append((held, name, held[name]))
                        held[name] = was
            yield
        finally:
            for held, name, now in undo:
                held[name] = now

    def _places(self) -> Iterator[tuple[Held, tuple[str, ...]]]:
        for reference, names in self._of_objects:
            living = reference()
            yield {} if living is None else vars(living), names
        yield from self._in_dicts

    def _note(self, held: Held, names: Iterable[str], of: Any = None) -> None:
        """`of`: the object whose attributes these are; else `held` itself is kept."""
        read = [n for n in names if type(n) is str and not n.startswith("__") and _is_plain(held[n])]
        read = read[: min(self._room, MOST_OF_ONE)]
        self._room -= len(read)
        if read and of is not None:
            self._of_objects.append((weakref.ref(of), tuple(read)))
        elif read:
            self._in_dicts.append((held, tuple(read)))

    def _note_configuration(self, value: Any) -> None:
        if id(value) in self._seen or isinstance(value, NO_CONFIGURATION) or callable(value):
            return
        self._seen.add(id(value))
        held = value if type(value) is dict else getattr(value, "__dict__", None)
        if type(held) is not dict:
            return
        if all(map(_is_plain, held.values())):  # then it may be held
            self._note(held, held)
        elif held is not value and hasattr(type(value), "__weakref__"):
            self._note(held, held, value)

    def _note_what_it_reads(self, function: Any, depth: int) -> None:
        if id(function) in self._seen or not _is_of_the_program(function):
            return
        self._seen.add(id(function))
        variables = function.__globals__
        names = [n for n in dict.fromkeys(_names_in(function.__code__)) if n in variables]
        self._note(variables, names)  # of a file, which lives as long as its functions
        for value in [variables[n] for n in names]:
            self._note_configuration(value)
            if depth:
                self._note_what_it_reads(value, depth - 1)


def _is_plain(value: Any) -> bool:
    if type(value) is torch.Tensor:
        return value.dim() == 0 and not value.requires_grad
    return type(value) in PLAIN


def _is_of_the_program(function: Any) -> bool:
    return isinstance(function, types.FunctionType) and not is_library(function.__code__.co_filename)


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
