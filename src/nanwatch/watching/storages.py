"""Memory as an identity: tensors that share it share their fate."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

Fact = TypeVar("Fact")


def key_of(tensor: torch.Tensor) -> int:
    """The identity of the memory behind `tensor`; stable while somebody holds a reference to it."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return id(tensor) if tensor.layout is torch.strided else _sparse_key(tensor)


def _sparse_key(tensor: torch.Tensor) -> int:
    try:
        values = tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()
        return int(values.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return id(tensor)


FIRST_SWEEP = 64
"""Facts that are held before the first look for those of memory that was freed: each keeps a few bytes in the
middle of it, where nothing large can be put then."""


class Storages(Generic[Fact]):
    """A fact per piece of memory, forgotten when the memory is freed. The weak reference keeps the
    address from being used again for another."""

    def __init__(self) -> None:
        self._facts: dict[int, tuple[Any, Fact]] = {}
        self._sweep_at = FIRST_SWEEP

    def __bool__(self) -> bool:
        return bool(self._facts)

    def put(self, tensor: torch.Tensor, fact: Fact) -> None:
        if len(self._facts) >= self._sweep_at:
            self.sweep()
            self._sweep_at = max(FIRST_SWEEP, 2 * len(self._facts))
        try:
            storage = tensor.untyped_storage()
            self._facts[int(storage._cdata)] = (StorageWeakRef(storage), fact)
        except (NotImplementedError, RuntimeError):
            self._facts[key_of(tensor)] = (tensor, fact)

    def get(self, tensor: torch.Tensor) -> Fact | None:
        found = self._facts.get(key_of(tensor))
        return None if found is None else found[1]

    def at(self, key: int) -> Fact | None:
        """Of memory by its identity, also if it was freed since."""
        found = self._facts.get(key)
        return None if found is None else found[1]

    def drop(self, tensor: torch.Tensor) -> None:
        self._facts.pop(key_of(tensor), None)

    def sweep(self) -> None:
        """Forget memory that was freed."""
        if not self._facts:
            return
        dead = [
            key for key, (ref, _) in self._facts.items() if isinstance(ref, StorageWeakRef) and ref.expired()
        ]
        for key in dead:
            del self._facts[key]

    def holds(self, fact: Fact) -> bool:
        """Whether some memory that is still there has this fact."""
        return any(found == fact for _, found in self.alive())

    def alive(self) -> list[tuple[int, Fact]]:
        self.sweep()
        return [(key, fact) for key, (_, fact) in self._facts.items()]
