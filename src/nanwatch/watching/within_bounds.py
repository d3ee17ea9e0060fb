"""The tape of the step under way holds what the program holds and a bounded amount more, whatever the program
does between two updates.

What was differentiated (a part: a micro-batch up to its backward) is needed until the update. Its calls stay,
with the batch they were given; what they made is let go, since a replay makes it again. Beyond a bound the
oldest parts are left out. What nothing can differentiate any more, because neither the program nor a graph
holds it, is forgotten but for the last few calls: a validation without `no_grad`, samples that are looked at.
"""

from __future__ import annotations

import functools
import math
import os
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from nanwatch.messages import say
from nanwatch.watching.let_go import has_graph, let_go_of, use_again
from nanwatch.watching.tape import DATA_BYTES, DATA_ENTRIES, Entry, Tape, given_to

CALLS_KEPT = 3
"""Calls of models that stay on the tape with what led to them, though nothing can differentiate them."""
PARTS_BYTES = 2**30
PARTS_SHARE = 1 / 64
"""Of a device's memory, and no more than the above: so much of the batches of one step is held."""
PARTS_ENTRIES = 10_000
LOOKED_AT_ONCE = 64
"""Entries after which a long tape is looked at again."""
FIRST_SWEEP = 512
FEWEST_FORGOTTEN = 4
"""Fewer entries are not worth a new tape."""


@dataclass(slots=True)
class Bounds:
    """Of one tape: what was looked at, and when to look again."""

    settled: int = 0
    """So many of the first entries belong to parts that were differentiated, and are let go of."""
    tried_from: int = 0
    """Where the last of these parts begins: the program may have held what it made, and hold it no longer."""
    nbytes: int = 0
    """Of what these hold."""
    limit: float = PARTS_BYTES
    counted: set[int] = field(default_factory=set)
    """ids of the tensors in it."""
    retry_at: int = 0
    """How many entries there are when what the program held before is tried once more."""
    open_calls: int = 0
    """Calls of models with gradients on that no backward has followed yet."""
    sweep_at: int = 2
    """So many of them are too many."""
    differentiated: bool = False
    """There was a backward, and what led to it is not settled."""
    parts: bool = False
    """More came after a backward, in this step or in the one before: there are several."""
    look_at: int = LOOKED_AT_ONCE
    """How many entries there are when the next look is due."""
    looked_at: int = 0
    plain_bytes: int = 0
    """Of what calls without gradients have made since the last sweep."""
    sweep_entries: int = FIRST_SWEEP
    before_parts: dict[tuple[int, bool], Entry] = field(default_factory=dict)
    """(id of a model, training mode) -> its first call among those: only what it changed."""


def look(tape: Tape, bounds: Bounds) -> None:
    """At a long tape, each time that so many entries were added."""
    for entry in tape.entries[bounds.looked_at :]:
        bounds.plain_bytes += sum(_size(t) for t, _ in entry.made if not t.requires_grad)
    if len(tape.entries) >= bounds.sweep_entries or bounds.plain_bytes > DATA_BYTES:
        sweep(tape, bounds)
    bounds.looked_at = len(tape.entries)
    bounds.look_at = bounds.looked_at + LOOKED_AT_ONCE


def sweep(tape: Tape, bounds: Bounds) -> None:
    """Forget what nothing can differentiate any more. What is held is gone through again only when there is
    twice as much of it: so each call costs the same, however long the tape."""
    settle(tape, bounds)
    _let_go_of_graphs(tape, bounds.settled)
    kept = _still_needed(tape, bounds.settled)
    forgotten = len(tape.entries) - len(kept)
    if forgotten >= max(FEWEST_FORGOTTEN, len(tape.entries) // 8):
        _rebuild(tape, bounds, kept)
    del kept
    living = sum(e.kind == "module" and _lives(e) for e in tape.entries[bounds.settled :])
    bounds.open_calls = living
    bounds.sweep_at = living + max(1, living - 1)
    bounds.sweep_entries = max(FIRST_SWEEP, 2 * len(tape.entries))
    bounds.looked_at, bounds.plain_bytes = len(tape.entries), 0


# What was differentiated


def ends_a_part(entry: Entry) -> bool:
    return entry.kind == "backward" or entry.derivative or getattr(entry.call, "__name__", "") == "grad"


def settle(tape: Tape, bounds: Bounds) -> None:
    """What led to the last backward is differentiated. Done at the next call of a model, or the next
    backward: right after it, the program still holds its loss."""
    bounds.differentiated = False
    upto = len(tape.entries)
    while upto > bounds.settled and not ends_a_part(tape.entries[upto - 1]):
        upto -= 1
    if upto == bounds.settled:
        return
    bounds.parts = True
    first, bounds.tried_from = bounds.tried_from, bounds.settled
    if upto >= bounds.retry_at:
        first, bounds.retry_at = 0, 2 * upto
    let_go_of(tape, first, upto)
    for entry in tape.entries[bounds.settled : upto]:
        entry.held_bytes = _count(entry, bounds)
        bounds.nbytes += entry.held_bytes
    bounds.settled = upto
    if bounds.nbytes > bounds.limit or upto > PARTS_ENTRIES:
        _leave_out_the_oldest(tape, bounds)


def _count(entry: Entry, bounds: Bounds) -> int:
    """The bytes that only this entry holds on the tape: not weights, and not what was let go."""
    held = [t for t, _ in (*entry.versions, *entry.made) if not (t.requires_grad and t.is_leaf)]
    held += [value for _, _, value in entry.buffers]
    found = 0
    for tensor in held:
        if id(tensor) not in bounds.counted and not tensor.is_meta:
            bounds.counted.add(id(tensor))
            bounds.limit = min(bounds.limit, PARTS_SHARE * memory_of(tensor.device))
            found += _size(tensor)
    return found


def _leave_out_the_oldest(tape: Tape, bounds: Bounds) -> None:
    """Half of what is allowed stays, and at least the last part."""
    settled = tape.entries[: bounds.settled]
    cut, nbytes = bounds.settled, 0
    for index in reversed(range(bounds.settled)):
        nbytes += settled[index].held_bytes
        too_much = nbytes > bounds.limit / 2 or bounds.settled - index > PARTS_ENTRIES / 2
        if ends_a_part(settled[index]) and index + 1 < bounds.settled:
            cut = index + 1
            if too_much:
                break
    else:
        return  # there is one part only
    kept = _with_their_graph(tape.entries, set(range(cut, len(tape.entries))))
    if len(kept) == len(tape.entries):
        return
    staying = set(map(id, kept))
    for entry in settled[:cut]:
        if entry.kind == "module" and id(entry) not in staying:
            bounds.before_parts.setdefault((id(entry.call), entry.training), _what_it_changed(entry))
    if not tape.lacks_parts:
        tape.notes.append(say("watch.oldest_parts_left_out"))
    tape.lacks_parts = True
    del settled, entry
    _rebuild(tape, bounds, kept)


def _what_it_changed(entry: Entry) -> Entry:
    shell = Entry(entry.kind, entry.call, (), {}, entry.stack, entry.context)
    shell.buffers, shell.attributes = entry.buffers, entry.attributes
    shell.containers, shell.generators = entry.containers, entry.generators
    return shell


# What nothing can differentiate any more


class _InGraph:
    """Lives as long as the node of a graph that it was given to."""

    __slots__ = ("__weakref__",)


MARK = "nanwatch"


def _let_go_of_graphs(tape: Tape, first: int) -> None:
    seen_before: set[tuple[int, str]] = set()
    for entry in tape.entries[first:]:
        if entry.graph is None:
            entry.graph = _marks_on(t for t, _ in entry.made)
        if entry.attributes:
            entry.attributes = [
                (owner, name, value if (id(owner), name) not in seen_before else _without_graph(value))
                for owner, name, value in entry.attributes
            ]
            seen_before.update((id(owner), name) for owner, name, _ in entry.attributes)
    let_go_of(tape, first, len(tape.entries))


def _without_graph(value: object) -> object:
    """Only the first value of an attribute is one to go back to: the others need not hold graphs, and those
    the ones before."""
    return value.detach() if isinstance(value, Tensor) and has_graph(value) else value


def _marks_on(made: Iterable[Tensor]) -> list[weakref.ref[_InGraph]]:
    """On the nodes that made these; a tensor may be gone and its node not."""
    nodes: list[Any] = [tensor.grad_fn for tensor in made if has_graph(tensor)]
    return [weakref.ref(node.metadata.setdefault(MARK, _InGraph())) for node in nodes]


def _lives(entry: Entry) -> bool:
    """Whether the program, or a graph, holds something that it made."""
    return bool(entry.graph) and any(mark() is not None for mark in entry.graph or ())


def _still_needed(tape: Tape, first: int) -> list[Entry]:
    """The last calls, with what led to them, and what can be differentiated; where nothing is dead, all."""
    entries = tape.entries
    recent = _first_recent(entries, first)
    calls = [i for i in range(first, len(entries)) if entries[i].kind == "module"]
    dead = any(e.graph and not _lives(e) for e in entries[first:recent])
    if not dead and recent - first < DATA_ENTRIES:
        return entries
    kept = {i for i in range(len(entries)) if i < first or i >= recent or _lives(entries[i])}
    return _with_their_graph(entries, kept.union(calls[-1:]))


def _first_recent(entries: list[Entry], first: int) -> int:
    """Right after a call of a model; or, in a long computation without, where enough data was made since."""
    calls = nbytes = 0
    for index in reversed(range(first, len(entries))):
        calls += entries[index].kind == "module"
        nbytes += sum(_size(t) for t, _ in entries[index].made if not t.requires_grad)
        if calls > CALLS_KEPT or len(entries) - index > DATA_ENTRIES or nbytes > DATA_BYTES:
            return index + 1
    return first


def _with_their_graph(entries: list[Entry], kept: set[int]) -> list[Entry]:
    """These, and what they hang on by a graph."""
    found: list[Entry] = []
    wanted: set[int] = set()
    for index in reversed(range(len(entries))):
        entry = entries[index]
        if index in kept or (
            entry.kind != "backward" and any(id(t) in wanted and has_graph(t) for t, _ in entry.made)
        ):
            found.append(entry)
            wanted.update(map(id, given_to(entry)))
    return found[::-1]


def _rebuild(tape: Tape, bounds: Bounds, kept: list[Entry]) -> None:
    settled = set(map(id, tape.entries[: bounds.settled]))
    last_part = bounds.settled - bounds.tried_from
    stand_ins = tape.stand_ins
    tape.rebuild(kept)
    tape.stand_ins = [t for t in stand_ins if id(t) in tape.made]
    unused = [t for t in stand_ins if id(t) not in tape.made]
    del stand_ins
    use_again(unused)
    bounds.settled = sum(id(entry) in settled for entry in kept)
    bounds.tried_from = max(0, bounds.settled - last_part)
    bounds.nbytes = sum(entry.held_bytes for entry in kept[: bounds.settled])
    bounds.counted.clear()


def _size(tensor: Tensor) -> int:
    return tensor.nbytes if tensor.layout is torch.strided and not tensor.is_meta else 0


@functools.cache
def memory_of(device: torch.device) -> float:
    """In bytes."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    if device.type == "cpu" and hasattr(os, "sysconf"):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return math.inf
