"""Models and random states as they were before a step, while it is run again; then all as it is now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch import nn

from nanwatch.replay.untouched import Untouched
from nanwatch.watching.contents import held_by, put_contents
from nanwatch.watching.module_state import attribute_of, own_names, put_attribute, put_tensor, tensor_of
from nanwatch.watching.randomness import GeneratorState, Rng, put_state, state_of
from nanwatch.watching.tape import Entry

MOST_HELD = 100_000
LARGEST_ARRAY = 2**24


@contextlib.contextmanager
def everything_put_back(entries: list[Entry], untouched: Untouched) -> Iterator[None]:
    """Buffers, attributes and what lists and the like hold, as they were before the step, for the time of the
    replay; then all as it is."""
    rng = Rng.of_all()
    generators: list[GeneratorState] = [(g, state_of(g)) for entry in entries for g, _ in entry.generators]
    swapped: list[tuple[nn.Module, str, torch.Tensor | None]] = []
    flags: list[tuple[nn.Module, bool]] = []
    done: set[tuple[int, str]] = set()
    replaced: list[tuple[nn.Module, str, Any]] = []
    values = list(_values_of({id(e.call): e.call for e in entries if isinstance(e.call, nn.Module)}))
    known = [held[0] for entry in entries for held in entry.containers]
    held = [*held_by(values, MOST_HELD, tensors=False), *held_by([known])]
    arrays = [(v, v.copy()) for v in values if _is_array(v)]
    try:
        for entry in reversed(entries):
            put_contents([(held[0], held[1]) for held in entry.containers])
        for entry in entries:
            if isinstance(entry.call, nn.Module):
                flags += [(m, m.training) for m in entry.call.modules() if hasattr(m, "training")]
            for owner, name, before in entry.buffers:
                if (id(owner), name) not in done:
                    done.add((id(owner), name))
                    now = tensor_of(owner, name)
                    swapped.append((owner, name, now))
                    put_tensor(owner, name, untouched.own(before.clone(), of=now))
            for owner, name, value in entry.attributes:
                if (id(owner), name) not in done:
                    done.add((id(owner), name))
                    replaced.append((owner, name, attribute_of(owner, name)))
                    put_attribute(owner, name, value)
        yield
    finally:
        for owner, name, value in swapped:
            put_tensor(owner, name, value)
        for owner, name, value in replaced:
            put_attribute(owner, name, value)
        put_contents(held)
        for array, copy in arrays:
            with contextlib.suppress(ValueError):  # its shape was changed
                array[...] = copy
        for module, training in flags:
            module.training = training
        untouched.put_back()
        for generator, state in generators:
            put_state(generator, state)
        rng.put_back()


def _values_of(roots: dict[int, nn.Module]) -> Iterator[Any]:
    for root in roots.values():
        for module in root.modules():
            yield from (attribute_of(module, name) for name in own_names(module))


def _is_array(value: Any) -> bool:
    return type(value) is numpy.ndarray and value.flags.writeable and value.nbytes <= LARGEST_ARRAY
