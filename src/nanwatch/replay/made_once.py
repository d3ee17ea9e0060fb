"""What a program makes once and keeps for all later steps: a table behind `functools.lru_cache`, a mask in an
attribute, positions in a dict. The step that made it is long gone, but what made it is not: it is asked to
make it once more. Only what gives the very same values again was made so."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from itertools import islice, pairwise
from types import CodeType
from typing import Any

import torch
from torch import nn

from nanwatch.replay.again import Changes, run_again
from nanwatch.replay.blame import first_harmful
from nanwatch.replay.likeness import equal
from nanwatch.replay.trace import Op
from nanwatch.replay.tracer import OpTracer
from nanwatch.watching.module_calls import ModuleCalls, Scope
from nanwatch.watching.module_state import OF_EVERY_MODULE, every_module
from nanwatch.watching.randomness import Rng, drawn_again
from nanwatch.watching.stack import is_library
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import tensors_in
from nanwatch.watching.trouble import Trouble

MOST_TRIED = 4
"""Places in which the same tensor is kept."""


def made_once(memory: int, trouble: Trouble, calls: ModuleCalls) -> Op | None:
    """The op that first made something bad in memory which a step before the recorded ones has filled."""
    return _in_a_cached_function(memory, trouble.step) or _in_a_model(memory, trouble, calls)


# Cached functions


def _in_a_cached_function(memory: int, step: int) -> Op | None:
    """Its function gives the same for the same arguments: that is why it is cached."""
    for cached in gc.get_objects():
        if type(cached) is not functools._lru_cache_wrapper or not _is_of_the_program(cached):
            continue
        for key, result in _kept_by(cached):
            if any(key_of(t) == memory for t in tensors_in(result)):
                return _made_by(cached.__wrapped__, *_arguments_of(key), tensors_in(result), step)
    return None


def _made_by(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], before: list[torch.Tensor], step: int
) -> Op | None:
    tracer = OpTracer(Scope())
    tracer.alone, tracer.step, tracer.boundary = True, step, sys._getframe()
    try:
        with drawn_again(Rng.of_all(), ()), torch.no_grad(), tracer:
            made = tensors_in(function(*args, **kwargs))
    except Exception:
        return None
    return _born_in(tracer, made) if _are_equal(made, before) else None


def _is_of_the_program(cached: Any) -> bool:
    code = getattr(cached.__wrapped__, "__code__", None)
    return isinstance(code, CodeType) and not is_library(code.co_filename)


def _kept_by(cached: Any) -> Iterator[tuple[Any, Any]]:
    """The keys and results of an `lru_cache`, as the garbage collector sees them: one after the other, or,
    where any number is kept, in a dict."""
    held = gc.get_referents(cached)
    results = next((h for h in held if type(h) is dict), {})
    yield from pairwise(held)
    yield from list(results.items())


def _arguments_of(key: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Of the call: a single number or word is its own key. A bare object stands before those with names."""
    if type(key) is not tuple:
        return (key,), {}
    mark = next((place for place, part in enumerate(key) if type(part) is object), len(key))
    named = key[mark + 1 :]
    return key[:mark], dict(zip(named[::2], named[1::2], strict=False))


def _are_equal(made: list[torch.Tensor], before: list[torch.Tensor]) -> bool:
    return len(made) == len(before) and all(map(equal, made, before))


# What a model makes when it does not find it


@dataclass
class _Place:
    """Where something is kept, by which name."""

    holder: MutableMapping[Any, Any]
    name: Any
    empty: tuple[Any, ...]
    """What is there where it was not made yet; nothing at all, where nothing is given."""

    def make_empty(self) -> None:
        if self.empty:
            self.holder[self.name] = self.empty[0]
        else:
            self.holder.pop(self.name, None)

    @contextlib.contextmanager
    def put_back(self) -> Iterator[None]:
        names = list(self.holder)
        following = names[names.index(self.name) + 1 :]
        kept = self.holder[self.name]
        try:
            yield
        finally:
            self.holder[self.name] = kept
            for name in () if self.empty else following:  # in the same order
                if name in self.holder:
                    self.holder[name] = self.holder.pop(name)


def _in_a_model(memory: int, trouble: Trouble, calls: ModuleCalls) -> Op | None:
    models = [e.call for e in trouble.tape.entries if isinstance(e.call, nn.Module)]
    for place in islice(_places(memory, models), MOST_TRIED):
        before = tensors_in(place.holder[place.name])
        made: list[torch.Tensor] = []

        def look(place: _Place = place, made: list[torch.Tensor] = made) -> None:
            made[:] = tensors_in(place.holder.get(place.name))

        changes = Changes(at_begin=place.make_empty, at_end=look)
        with place.put_back():
            again = run_again(trouble.tape, trouble.earlier, calls, changes=changes)
        if _are_equal(made, before):
            return _born_in(again.tracer, made)
    return None


def _born_in(tracer: OpTracer, made: list[torch.Tensor]) -> Op | None:
    writers = [tracer.writers.get(t) for t in made]
    blame = first_harmful(tracer.trace, [index for index in writers if index is not None])
    return None if blame is None or blame.outside is not None else blame.op


def _places(memory: int, models: list[nn.Module]) -> Iterator[_Place]:
    """In the attributes of the models, of what is in them, or in a dict there or beside the program's own
    functions."""
    for own in dict.fromkeys(m for model in models for m in every_module(model)):
        attributes = {n: v for n, v in vars(own).items() if n not in OF_EVERY_MODULE}
        for name, value in attributes.items():
            if _holds(value, memory):
                yield _Place(vars(own), name, (None,))
                yield _Place(vars(own), name, ())
        yield from _in_dicts(attributes, memory)
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not is_library(file):
            yield from _in_dicts(vars(module), memory)


def _in_dicts(named: dict[str, Any], memory: int) -> Iterator[_Place]:
    for value in list(named.values()):
        for name, kept in list(value.items()) if type(value) is dict else ():
            if _holds(kept, memory):
                yield _Place(value, name, ())


def _holds(value: Any, memory: int) -> bool:
    """A tensor, or a few in a tuple or a list."""
    some = value if type(value) in (tuple, list) else (value,)
    return any(isinstance(t, torch.Tensor) and key_of(t) == memory for t in some)
