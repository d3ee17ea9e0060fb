"""One op as the tracer saw it: what it was given, what came of it, and where."""

from __future__ import annotations

from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from nanwatch.records import Numbers
from nanwatch.replay.op_facts import OpFacts, output_tensors
from nanwatch.watching.storages import key_of


@dataclass(slots=True)
class OpCall:
    """An aten op that runs or has just run."""

    function: Any
    facts: OpFacts
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arguments: list[tuple[str, Any]]
    """(name in the schema, value)."""
    inputs: list[tuple[str, torch.Tensor]]
    """The tensors among the arguments; those in lists are numbered."""
    before: dict[str, tuple[Numbers, Any]]
    """Input that was overwritten -> its numbers before that, and a copy if it is not too large."""
    outputs: Any
    node: Any
    """Of autograd, in a backward."""
    frame: FrameType
    """The one that called it."""
    began: float = 0.0
    """When, where somebody counts the time."""

    @property
    def is_view(self) -> bool:
        """Whether it only hands on memory that it was given."""
        if not self.facts.is_view or not self.facts.may_copy:
            return self.facts.is_view
        given = {key_of(tensor) for _, tensor in self.inputs}
        return all(key_of(tensor) in given for tensor in output_tensors(self.outputs))

    @property
    def operands(self) -> list[torch.Tensor] | None:
        """What it read, as it was then; None where that was overwritten and too large to be kept."""
        read = [(n, t) for n, t in self.inputs if not self.facts.writes(n) or n in self.before]
        kept = [self.before[n][1] if n in self.before else t for n, t in read]
        return None if any(t is None for t in kept) else kept

    @property
    def written(self) -> list[torch.Tensor]:
        """The inputs that it wrote to."""
        return [tensor for name, tensor in self.inputs if self.facts.writes(name)]

    @property
    def results(self) -> list[torch.Tensor]:
        """What it returned, and what it wrote to."""
        found = output_tensors(self.outputs)
        return found + [t for t in self.written if all(t is not r for r in found)]
