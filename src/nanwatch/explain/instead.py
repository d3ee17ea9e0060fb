"""The step with other memory in the place of some of its own: a weight, a buffer, fresh memory.

A dispatch mode hands each op the stand-in where it would read or write the original. Nothing of the
program is written to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nanwatch.explain.state import Held
from nanwatch.replay.again import Again, Changes
from nanwatch.replay.op_facts import op_facts, output_tensors
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import map_tensors

if TYPE_CHECKING:
    from nanwatch.explain.case import Case


class Instead(TorchDispatchMode):
    """Memory -> other memory of the same size."""

    def __init__(self, stand_ins: dict[int, torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._stand_ins = stand_ins

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = map_tensors(args, self._of), map_tensors(kwargs or {}, self._of)
        return function(*args, **kwargs)

    def _of(self, tensor: torch.Tensor) -> torch.Tensor:
        other = self._stand_ins.get(key_of(tensor))
        if other is None or other.dtype != tensor.dtype:
            return tensor
        return other.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


class Filled(TorchDispatchMode):
    """Fresh memory that nobody has written yet holds `value`, wherever it is asked for."""

    def __init__(self, value: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._value = value
        self.filled = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        if op_facts(function).allocates:
            for tensor in output_tensors(made):
                if tensor.device.type != "meta" and tensor.is_floating_point():
                    tensor.fill_(self._value)
                    self.filled += 1
        return made


def with_values(case: Case, values: list[tuple[Held, torch.Tensor]]) -> Again:
    """The step again, each of these tensors holding other values."""
    stand_ins: dict[int, torch.Tensor] = {}
    for each, value in values:
        stand_ins[each.key] = _whole(each.tensor, value, stand_ins.get(each.key))
    with _buffers_before(case, values):
        return case.rerun(Changes(around=lambda: Instead(stand_ins)))


def _whole(tensor: torch.Tensor, value: torch.Tensor, have: torch.Tensor | None) -> torch.Tensor:
    """All of the tensor's memory, copied, with `value` in the tensor's place."""
    flat = tensor.detach()
    count = flat.untyped_storage().nbytes() // flat.element_size()
    if have is None:
        have = flat.as_strided((count,), (1,), 0).clone()
    have.as_strided(flat.size(), flat.stride(), flat.storage_offset()).copy_(value)
    return have


@contextlib.contextmanager
def _buffers_before(case: Case, values: list[tuple[Held, torch.Tensor]]) -> Iterator[None]:
    """A replay begins with the buffers as they were before the step: with these values, for this time."""
    wanted = {(id(h.owner), h.attribute): v for h, v in values if h.owner is not None}
    entries = [e for e in case.tape.entries if e.buffers]
    was = [(e, e.buffers) for e in entries]
    try:
        for entry in entries:
            entry.buffers = [
                (owner, name, wanted.get((id(owner), name), before)) for owner, name, before in entry.buffers
            ]
        yield
    finally:
        for entry, buffers in was:
            entry.buffers = buffers
