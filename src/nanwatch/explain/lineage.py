"""Every op of the step, finite or not: where an operand came from, and what became of it.

The trace of a replay knows only ops that touched a non-finite value. A divisor that is zero is finite; to tell
an empty mask from a zero norm one must know what computed it. So the step is run once more, and of each op
its name, its plain arguments, the numbers of what it made and the ops that made its inputs are written down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from nanwatch.records import Numbers
from nanwatch.replay.again import Changes
from nanwatch.replay.op_facts import OpFacts, op_facts, output_tensors
from nanwatch.replay.trace import Op
from nanwatch.replay.tracer import OpTracer, measurable
from nanwatch.tensors import numbers
from nanwatch.watching.module_calls import Scope
from nanwatch.watching.stack import Stack
from nanwatch.watching.storages import Storages, key_of

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

MOST_NODES = 200_000


@dataclass(slots=True)
class Node:
    """One op."""

    index: int
    name: str
    """ "aten.div.Tensor"."""
    phase: str
    modules: tuple[nn.Module, ...]
    stack: Stack
    arguments: dict[str, Any]
    """The plain ones: numbers, dims, dtypes."""
    inputs: list[tuple[str, int | None, int]]
    """(name, the op that made it or None for what came from outside, identity of its memory)."""
    outputs: list[Numbers] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    """Identities of the memory of the outputs."""
    op: int | None = None
    """Its index in the trace, if it touched something non-finite."""

    @property
    def base(self) -> str:
        name = self.name.split(".")[1] if "." in self.name else self.name
        return name.removesuffix("_")


@dataclass
class Lineage:
    nodes: dict[int, Node] = field(default_factory=dict)
    leaves: dict[int, torch.Tensor] = field(default_factory=dict)
    """Identity of memory -> a tensor from outside that some op read: weights, the batch."""
    ops: dict[int, Op] = field(default_factory=dict)
    """The trace of the same replay."""

    def node_of(self, op: Op) -> Node | None:
        """The node of an op that was traced in this replay or another one of the same step: by its name, its
        place and its being bad."""
        for node in self.nodes.values():
            mine = self.ops.get(node.op) if node.op is not None else None
            if node.name == op.name and mine is not None and mine.stack == op.stack and mine.bad_outputs:
                return node
        return None

    def maker(self, node: Node, name: str) -> Node | None:
        """What made the input `name` of this node."""
        for given, source, _ in node.inputs:
            if given == name and source is not None:
                return self.nodes.get(source)
        return None

    def upstream(self, node: Node, within: int = 50) -> Iterator[Node]:
        """The ops that this one hangs on, nearest first."""
        seen = {node.index}
        waiting = [node]
        while waiting and within:
            current = waiting.pop(0)
            for _, source, _ in current.inputs:
                if source is not None and source not in seen and source in self.nodes:
                    seen.add(source)
                    found = self.nodes[source]
                    waiting.append(found)
                    within -= 1
                    yield found

    def downstream(self, node: Node, within: int = 50) -> Iterator[Node]:
        """The ops that hang on this one, nearest first."""
        reached = {node.index}
        for later in sorted(i for i in self.nodes if i > node.index):
            found = self.nodes[later]
            if any(source in reached for _, source, _ in found.inputs):
                reached.add(later)
                within -= 1
                yield found
                if not within:
                    return


class _Witness(OpTracer):
    """An op tracer that writes every op down."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.lineage = Lineage()
        self._makers: Storages[int] = Storages()
        self._count = 0

    def _after(
        self,
        function: Any,
        facts: OpFacts,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        arguments: list[tuple[str, Any]],
        inputs: list[tuple[str, torch.Tensor]],
        before: Any,
        outputs: Any,
        node: Any,
        frame: FrameType,
    ) -> None:
        first = self.next_index
        read = [(name, self._makers.get(tensor), key_of(tensor)) for name, tensor in inputs]
        for (_, source, key), (_, tensor) in zip(read, inputs, strict=True):
            if source is None:
                self.lineage.leaves.setdefault(key, tensor)
        super()._after(function, facts, args, kwargs, arguments, inputs, before, outputs, node, frame)
        if len(self.lineage.nodes) >= MOST_NODES:
            return
        written = [t for name, t in inputs if name.split("[")[0] in facts.written]
        made = output_tensors(outputs)
        made += [t for t in written if all(t is not m for m in made)]
        place = self._note_origin(node, frame)
        self._count += 1
        found = Node(
            index=self._count,
            name=facts.name,
            phase=self._phase_of(inputs, made, node),
            modules=place[1],
            stack=place[0],
            arguments={n: v for n, v in arguments if not output_tensors(v) and v is not None},
            inputs=read,
            outputs=[numbers(t) for t in made if measurable(t)],
            keys=[key_of(t) for t in made],
            op=first if self.next_index > first and first in self.trace.ops else None,
        )
        self.lineage.nodes[self._count] = found
        if not op_facts(function).is_view:
            for tensor in made:
                self._makers.put(tensor, self._count)


def lineage_of(case: Case) -> Lineage:
    again = case.rerun(Changes(tracer=_Witness))
    witness = again.tracer
    if not isinstance(witness, _Witness):
        return Lineage()
    witness.lineage.ops = witness.trace.ops
    return witness.lineage
