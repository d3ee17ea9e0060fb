"""Numbers and words that a model's code reads without being given them: attributes of its modules, variables
of its file, entries of a configuration there. A program may set one for a call and put it back afterwards:
each call has them on record, so that a replay has those of the call.
"""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Callable, Iterator
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
MISSING = object()

Held = dict[str, Any]
Values = tuple[tuple[Any, ...], ...]


class Settings:
    """Of one model: where they are. Holds nothing but weakly, or what lives as long as its file."""

    def __init__(self, model: nn.Module) -> None:
        self._places: list[tuple[Callable[[], Held | None], tuple[str, ...]]] = []
        self._room = MOST
        self._seen: set[int] = set()
        own = [module for module in model.modules() if _is_of_the_program(type(module).forward)]
        for module in own:
            attributes = {n: v for n, v in vars(module).items() if n not in OF_EVERY_MODULE}
            self._note(_of_object(module), attributes)
            for value in attributes.values():
                self._note_configuration(value)
        for kind in dict.fromkeys(map(type, own)):
            for value in vars(kind).values():
                self._note_what_it_reads(getattr(value, "__func__", value), DEEPEST_FUNCTION)

    def __bool__(self) -> bool:
        return bool(self._places)

    def now(self) -> Values:
        found = []
        for held_by, names in self._places:
            held = held_by()
            found.append(() if held is None else tuple([held.get(name, MISSING) for name in names]))
        return tuple(found)

    @contextlib.contextmanager
    def as_they_were(self, values: Values) -> Iterator[None]:
        undo: list[tuple[Held, str, Any]] = []
        try:
            for (held_by, names), then in zip(self._places, values, strict=True):
                held = held_by() or {}
                for name, was in zip(names, then, strict=False):
                    if _is_plain(was) and _is_plain(held.get(name)):
                        undo.append((held, name, held[name]))
                        held[name] = was
            yield
        finally:
            for held, name, now in undo:
                held[name] = now

    def _note(self, held_by: Callable[[], Held | None], held: Held) -> None:
        names = [n for n, v in held.items() if _is_plain(v) and type(n) is str and not n.startswith("__")]
        names = names[: min(self._room, MOST_OF_ONE)]
        if names:
            self._room -= len(names)
            self._places.append((held_by, tuple(names)))

    def _note_configuration(self, value: Any) -> None:
        if id(value) in self._seen or isinstance(value, NO_CONFIGURATION) or callable(value):
            return
        self._seen.add(id(value))
        held = value if type(value) is dict else getattr(value, "__dict__", None)
        if type(held) is not dict:
            return
        if all(map(_is_plain, held.values())):  # then it may be held
            self._note(lambda: held, held)
        elif held is not value and hasattr(type(value), "__weakref__"):
            self._note(_of_object(value), held)

    def _note_what_it_reads(self, function: Any, depth: int) -> None:
        if id(function) in self._seen or not _is_of_the_program(function):
            return
        self._seen.add(id(function))
        variables = function.__globals__
        names = [n for n in dict.fromkeys(_names_in(function.__code__)) if n in variables]
        self._note(lambda: variables, {n: variables[n] for n in names})
        for value in [variables[n] for n in names]:
            self._note_configuration(value)
            if depth:
                self._note_what_it_reads(value, depth - 1)


def _is_plain(value: Any) -> bool:
    if type(value) is torch.Tensor:
        return value.dim() == 0 and not value.requires_grad
    return type(value) in PLAIN


def _of_object(value: Any) -> Callable[[], Held | None]:
    reference = weakref.ref(value)

    def held_by() -> Held | None:
        living = reference()
        return None if living is None else vars(living)

    return held_by


def _is_of_the_program(function: Any) -> bool:
    return isinstance(function, types.FunctionType) and not is_library(function.__code__.co_filename)


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
