"""Which copies to the host were read before anybody had waited for them.

A copy that the program waits for is innocent, whatever else went wrong; so is one that nobody reads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from nanwatch.replay.op_facts import named_arguments, op_facts, tensors_by_name
from nanwatch.watching.stack import Stack
from nanwatch.watching.storages import key_of
from nanwatch.watching.wrapping import Wrappers


@dataclass
class _Pending:
    stack: Stack
    target: torch.Tensor
    """Held, so that its memory is not given to another."""
    awaited: bool = False
    read: bool = False
    read_early: bool = False


class AwaitedCopies:
    """Told of copies, of waiting and of ops, in the order in which they happen."""

    def __init__(self) -> None:
        self._copies: list[_Pending] = []

    def copied(self, stack: Stack, target: torch.Tensor) -> None:
        self._copies.append(_Pending(stack, target))

    def waited(self) -> None:
        """The host has waited for the device: all that was under way is there."""
        for copy in self._copies:
            copy.awaited = True

    def ran(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._copies:
            return
        read = _memory_read(function, args, kwargs)
        for copy in self._copies:
            if key_of(copy.target) in read:
                copy.read = True
                copy.read_early = copy.read_early or not copy.awaited

    def suspects(self) -> list[Stack]:
        """Those that were read too early. If no op has read any so, NumPy or Python may have: then those
        that nobody waited for and no op has read."""
        early = [c.stack for c in self._copies if c.read_early]
        return early or [c.stack for c in self._copies if not c.awaited and not c.read]


def _memory_read(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[int]:
    facts = op_facts(function)
    if facts.is_view:
        return set()
    inputs = tensors_by_name(named_arguments(facts, args, kwargs))
    return {key_of(t) for name, t in inputs if facts.reads_what_it_writes or not facts.writes(name)}


@contextlib.contextmanager
def noting_waits(waited: Callable[[], None]) -> Iterator[None]:
    """Calls `waited` whenever the program waits for the device: for an event, a stream, or all of it."""
    wrappers = Wrappers()
    for owner, name in (
        (torch.cuda.Event, "synchronize"),
        (torch.cuda.Event, "query"),
        (torch.cuda.Stream, "synchronize"),
        (torch.cuda.Stream, "query"),
        (torch.cuda, "synchronize"),
    ):
        wrappers.put(owner, name, _noting(owner.__dict__[name], waited))
    try:
        yield
    finally:
        wrappers.take_off()


def _noting(original: Callable[..., Any], waited: Callable[[], None]) -> Callable[..., Any]:
    def wait(*args: Any, **kwargs: Any) -> Any:
        done = original(*args, **kwargs)
        if done is not False:  # a query that came too early
            waited()
        return done

    return wait
