"""Every op of the step, finite or not: where an operand came from, and what became of it.

The trace of a replay knows only ops that touched a non-finite value. A divisor that is zero is finite; to
tell an empty mask from a zero norm one must know what computed it. So a witness writes down of each op its
name, its plain arguments, the numbers of what it read and made and the ops that made its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from nanwatch.records import Numbers
from nanwatch.replay.op_call import OpCall
from nanwatch.replay.op_facts import output_tensors
from nanwatch.replay.trace import Op
from nanwatch.replay.tracer import ENGINE, OpTracer
from nanwatch.tensors import numbers
from nanwatch.watching.module_calls import Scope
from nanwatch.watching.stack import DEEPEST, Stack, called_from, is_library, is_users, stack_within
from nanwatch.watching.storages import Storages, key_of

MOST_NODES = 200_000

PICKS = frozenset(
    "nll_loss_forward nll_loss2d_forward gather index take index_select mul log log2 log10 xlogy".split()
)
"""Ops whose operands are kept when an infinity passes through them."""


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
    given: dict[str, Numbers] = field(default_factory=dict)
    """Input -> its numbers as the op read it: of the view itself, not of all its memory."""
    outputs: list[Numbers] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    """Identities of the memory of the outputs."""
    returned: float | None = None
    """The plain number it handed to Python: `.item()`, `float(x)`, `if x:`."""
    op: int | None = None
    """Its index in the trace, if it touched something non-finite."""
    own_code: bool = False
    """In backward: run by the program's own code (a hook, a custom function), not by torch's derivatives."""
    derives: int | None = None
    """In backward: the sequence number of the autograd node it belongs to."""
    is_view: bool = False

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
    losses: list[torch.Tensor] = field(default_factory=list)
    """What the replay differentiated."""
    by_sequence: dict[int, int] = field(default_factory=dict)
    """Sequence number of an autograd node -> the op of the forward pass that it is the derivative of."""

    def put_before(self, other: Lineage, made: dict[int, int], known: dict[int, int]) -> None:
        """Adds the ops of `other`, which ran earlier on copies. `made`: memory of one of our leaves ->
        the op of `other` that made it; `known`: memory of a copy -> the memory it is a copy of."""
        shift = -1 - max(other.nodes, default=0)
        traced = -1 - max(other.ops, default=0)
        for node in other.nodes.values():
            node.index += shift
            node.op = None if node.op is None else node.op + traced
            node.inputs = [(n, None if s is None else s + shift, known.get(k, k)) for n, s, k in node.inputs]
            node.keys = [known.get(k, k) for k in node.keys]
        for node in self.nodes.values():
            node.inputs = [
                (n, made[k] + shift if s is None and k in made else s, k) for n, s, k in node.inputs
            ]
        self.nodes = {**{n.index: n for n in other.nodes.values()}, **self.nodes}
        self.ops = {**{i + traced: op for i, op in other.ops.items()}, **self.ops}
        theirs = {known.get(k, k): t for k, t in other.leaves.items()}
        self.leaves = {**theirs, **{k: t for k, t in self.leaves.items() if k not in made}}

    def node_of(self, op: Op) -> Node | None:
        """The node of an op that was traced in this replay or another one of the same step, or live: by its
        name, its place and its being bad; in a loop, the one that made the same numbers."""
        made = [_count(o.numbers) for o in op.bad_outputs]
        found = None
        for node in self.nodes.values():
            mine = self.ops.get(node.op) if node.op is not None else None
            if node.name != op.name or mine is None or not mine.bad_outputs:
                continue
            if (node.phase == "backward") != (op.phase == "backward") or mine.node != op.node:
                continue
            if not _same_place(mine.stack, op.stack):
                continue
            if [_count(o.numbers) for o in mine.bad_outputs] == made:
                return node
            found = found or node
        return found

    def forward_of(self, node: Node) -> Node | None:
        """The op of the forward pass whose derivative this op of the backward pass computes."""
        if node.derives is None:
            return None
        index = self.by_sequence.get(node.derives)
        return None if index is None else self.nodes.get(index)

    def maker(self, node: Node, name: str) -> Node | None:
        """What made the input `name` of this node."""
        for given, source, _ in node.inputs:
            if given == name and source is not None:
                return self.nodes.get(source)
        return None

    def key(self, node: Node, name: str) -> int | None:
        """The identity of the memory of the input `name`."""
        return next((key for given, _, key in node.inputs if given == name), None)

    def leaf(self, node: Node, name: str) -> torch.Tensor | None:
        """The input `name` of this node, if it came from outside the step."""
        for given, source, key in node.inputs:
            if given == name and source is None:
                return self.leaves.get(key)
        return None

    def upstream(self, node: Node, within: int = 50) -> Iterator[Node]:
        """The ops that this one hangs on, nearest first."""
        seen = {node.index}
        waiting = [node]
        while waiting and within > 0:
            current = waiting.pop(0)
            for _, source, _ in current.inputs:
                if source is not None and source not in seen and source in self.nodes:
                    seen.add(source)
                    found = self.nodes[source]
                    waiting.append(found)
                    within -= 1
                    yield found

    def leaves_of(self, node: Node, name: str, within: int = 200) -> list[torch.Tensor]:
        """The tensors from outside that the input `name` was computed from."""
        maker = self.maker(node, name)
        if maker is None:
            leaf = self.leaf(node, name)
            return [] if leaf is None else [leaf]
        found: dict[int, torch.Tensor] = {}
        for each in (maker, *self.upstream(maker, within)):
            for _, source, key in each.inputs:
                if source is None and key in self.leaves:
                    found[key] = self.leaves[key]
        return list(found.values())

    def downstream(self, node: Node, within: int = 50) -> Iterator[Node]:
        """The ops that hang on this one, nearest first."""
        reached = {node.index}
        for later in sorted(i for i in self.nodes if i > node.index):
            found = self.nodes[later]
            if any(source in reached for _, source, _ in found.inputs):
                reached.add(later)
                within -= 1
                yield found
                if within <= 0:
                    return


def user_frames(stack: Stack) -> Stack:
    """The frames of the program's own code: the same live and in a replay."""
    return tuple(frame for frame in stack if is_users(frame[0]))


def _same_place(a: Stack, b: Stack) -> bool:
    """Frame by frame of the program's own code, as far out as both stacks reach: a deep one was cut."""
    mine, other = user_frames(a), user_frames(b)
    if max(len(a), len(b)) >= DEEPEST:
        shared = min(len(mine), len(other))
        return mine[:shared] == other[:shared]
    return mine == other


def _count(measured: Numbers) -> tuple[Any, ...]:
    return measured.shape, measured.nan, measured.posinf, measured.neginf


class Witness(OpTracer):
    """An op tracer that writes every op down."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.lineage = Lineage()
        self.lineage.ops = self.trace.ops
        self._makers: Storages[int] = Storages()
        self._count = 0

    def maker_of(self, tensor: torch.Tensor) -> int | None:
        """The op that made what is in this memory."""
        return self._makers.get(tensor)

    def _may_be_a_birth(self, op: Op) -> bool:
        """Also what only picks or weighs an infinity that was there on purpose: a loss at a target that is
        masked out. What a NaN has reached is not kept, it may be the whole model."""
        if super()._may_be_a_birth(op):
            return True
        base = op.name.split(".")[1].removesuffix("_") if "." in op.name else op.name
        infinite = bool(op.bad_outputs) and not any(o.numbers.nan for o in op.outputs)
        return infinite and base in PICKS and op.phase != "backward"

    def _after(self, call: OpCall) -> None:
        first = self.next_index
        read = [(name, self._makers.get(tensor), key_of(tensor)) for name, tensor in call.inputs]
        for (_, source, key), (_, tensor) in zip(read, call.inputs, strict=True):
            if source is None:
                self.lineage.leaves.setdefault(key, tensor)
        super()._after(call)
        self._count += 1
        if len(self.lineage.nodes) >= MOST_NODES:
            return
        facts, node, made = call.facts, call.node, call.results
        place = self._note_origin(node, call.frame)
        last = self.next_index - 1
        found = Node(
            index=self._count,
            name=facts.name,
            phase=self._phase_of(call.inputs, made, node),
            modules=place[1],
            stack=place[0],
            arguments={n: v for n, v in call.arguments if not output_tensors(v) and v is not None},
            inputs=read,
            outputs=[numbers(t) for t in made],
            keys=[key_of(t) for t in made],
            returned=float(call.outputs) if isinstance(call.outputs, (bool, int, float)) else None,
            op=last if last >= first and last in self.trace.ops else None,
            is_view=call.is_view,
        )
        if node is None:
            before = call.before
            found.given = {n: before[n][0] if n in before else numbers(t, n) for n, t in call.inputs}
        else:
            found.derives = node._sequence_nr()
            own = stack_within(call.frame, self.boundary, ENGINE)
            found.own_code = any(not is_library(code.co_filename) for code, _ in own)
        number = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]
        known = self.lineage.by_sequence.get(number)
        if known is None or called_from(self.lineage.nodes[known].stack, found.stack):
            self.lineage.by_sequence[number] = self._count
        self.lineage.nodes[self._count] = found
        if not found.is_view:
            for tensor in made:
                self._makers.put(tensor, self._count)
