"""Where the infinities that an op was given came from: the program wrote them down, or they were computed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.lineage import Node, Witness
from nanwatch.explain.mechanism import MASKED_ROW, Mechanism, dims_of, mechanism_of, rows_all
from nanwatch.records import Numbers
from nanwatch.replay.again import Changes
from nanwatch.replay.blame import looks_like_mask
from nanwatch.replay.op_call import OpCall
from nanwatch.replay.op_facts import CASTS
from nanwatch.replay.trace import Op, Operand
from nanwatch.replay.tracer import OpTracer
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import tensors_in
from nanwatch.watching.torch_functions import written_to

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

CONSTANT, MASK, OUTSIDE, BORN = "constant", "mask", "outside", "born"
FAR = 12


@dataclass(frozen=True)
class Origin:
    """`kind`: CONSTANT (a number of the program's text), MASK (a tensor of zeros and infinities that it was
    given, or the log of one of zeros and ones), OUTSIDE (other data), BORN (computed from finite values)."""

    kind: str
    op: Op | None = None
    operand: Operand | None = None

    @property
    def on_purpose(self) -> bool:
        return self.kind in (CONSTANT, MASK)


def origins_of_birth(case: Case) -> list[Origin]:
    """Of the infinities that the birth op was given: by the live trace, if that has seen it, or a replay."""
    op = case.located.op
    if op is None:
        return []
    tracer = getattr(case.trouble.live, "tracer", None)
    if isinstance(tracer, OpTracer) and tracer.trace.ops.get(op.index) is op:
        return origins(case, tracer.trace.ops, op)
    node = case.lineage.node_of(op)
    mine = None if node is None or node.op is None else case.lineage.ops.get(node.op)
    return [] if mine is None else origins(case, case.lineage.ops, mine)


def origins(case: Case, ops: dict[int, Op], op: Op) -> list[Origin]:
    """Of every non-finite operand of an op of this trace."""
    found = [Origin(CONSTANT, op)] if op.constants else []
    seen: set[int] = set()
    waiting = [op]
    while waiting:
        current = waiting.pop()
        for operand in current.bad_inputs:
            source = None if operand.source is None else ops.get(operand.source)
            if source is None:
                found.append(_from_outside(case, operand))
            elif source.index not in seen:
                seen.add(source.index)
                if not source.bad_inputs or source.constants or source.fresh is not None:
                    found.append(_of_op(source))
                waiting += [source] if source.bad_inputs else []
    return found


def _of_op(op: Op) -> Origin:
    if op.constants:
        return Origin(CONSTANT, op)
    return Origin(MASK if op.deliberate else BORN, op)


def _from_outside(case: Case, operand: Operand) -> Origin:
    if operand.from_python or _wrote_infinity(case, operand.key):
        return Origin(CONSTANT, None, operand)
    return Origin(MASK if looks_like_mask(operand.numbers) else OUTSIDE, None, operand)


def _wrote_infinity(case: Case, key: int) -> bool:
    """Whether the program itself put a plain infinity into this memory: `x[i] = float("inf")`."""
    for tape in (*case.trouble.earlier, case.tape):
        for entry in tape.entries:
            if entry.kind not in ("op", "write") or not _infinite([*entry.args, *entry.kwargs.values()]):
                continue
            touched = [*tensors_in(entry.outputs), *tensors_in(written_to(entry.args, entry.kwargs))]
            if any(key_of(t) == key for t in touched):
                return True
    return False


def _infinite(values: Any) -> bool:
    for value in values:
        if isinstance(value, float) and math.isinf(value):
            return True
        if isinstance(value, torch.Tensor) and value.dim() == 0 and bool(torch.isinf(value).any()):
            return True
        if isinstance(value, (list, tuple)) and len(value) < 1000 and _infinite(value):
            return True
    return False


# Rows that are masked everywhere, and what became of them later


@dataclass(frozen=True)
class MaskedRow:
    """`forward`: the op that was given the row, with its operands, where that is not the birth op."""

    birth: BirthOp
    mechanism: Mechanism


def masked_row(case: Case) -> MaskedRow | None:
    """The softmax over a row of -inf that is behind the birth: the birth op itself, the forward op whose
    derivative it is or whose hidden NaN it was given, or an exp whose sum became the zero it divides by."""
    birth = case.birth
    if birth is None or case.phase in ("weights", "optimizer", "data"):
        return None
    if case.mechanism.kind == MASKED_ROW:
        return MaskedRow(birth, case.mechanism)
    if case.phase == "backward" and birth.op.bad_inputs:
        return _in_forward(case)
    if birth.name in ("div", "log", "reciprocal") and case.mechanism.value == 0:
        return _exponentials_of_nothing(case)
    return None


def _in_forward(case: Case) -> MaskedRow | None:
    assert case.birth is not None
    lineage = case.lineage
    node = lineage.node_of(case.birth.op)
    op = None if node is None or node.op is None else lineage.ops.get(node.op)
    if node is None or op is None:
        return None
    forward = lineage.forward_of(node)
    suspects = [] if forward is None or forward.op is None else [lineage.ops[forward.op]]
    suspects += [o.op for o in origins(case, lineage.ops, op) if o.op is not None]
    suspects += [lineage.ops[s.source] for s in op.bad_inputs if s.source in lineage.ops]
    for suspect in suspects:
        found = BirthOp(suspect)
        mechanism = mechanism_of(found)
        if suspect.phase != "backward" and mechanism.kind == MASKED_ROW:
            return MaskedRow(found, mechanism)
    return None


def _exponentials_of_nothing(case: Case) -> MaskedRow | None:
    """exp(x) / exp(x).sum() by hand, where a row of x is -inf everywhere."""
    assert case.birth is not None
    lineage = case.lineage
    node = lineage.node_of(case.birth.op)
    total = None if node is None else lineage.maker(node, case.mechanism.operand)
    while total is not None and total.base in ("clamp", "clamp_min", *CASTS, "unsqueeze", "expand"):
        total = lineage.maker(total, "self")
    if total is None or total.base != "sum":
        return None
    powers = lineage.maker(total, "self")
    if powers is None or powers.base not in ("exp", "exp2"):
        return None
    if not _all_hidden(powers.given.get("self"), total):
        return None
    scores = operand_again(case, powers, "self")
    if scores is None:
        return None
    dims = dims_of(total.arguments.get("dim"), scores.dim())
    if not bool(rows_all(scores == float("-inf"), dims).any()):
        return None
    return MaskedRow(case.birth, Mechanism(MASKED_ROW, case.mechanism.operand, float("-inf")))


def _all_hidden(scores: Numbers | None, total: Node) -> bool:
    """Whether there are enough -inf for a whole row."""
    if scores is None or not total.outputs:
        return False
    return scores.neginf * max(1, total.outputs[0].count) >= scores.count


class _Holding(Witness):
    """A witness that keeps one operand of one op."""

    wanted: tuple[int, str]
    held: torch.Tensor | None = None

    def _after(self, call: OpCall) -> None:
        super()._after(call)
        if self._count == self.wanted[0]:
            for name, tensor in call.inputs:
                if name == self.wanted[1]:
                    held = call.before[name][1] if name in call.before else tensor.detach().clone()
                    self.held = held


def operand_again(case: Case, node: Node, name: str) -> torch.Tensor | None:
    """The values that an op of the lineage was given. Costs a replay."""
    again = case.rerun(Changes(tracer=type("Holding", (_Holding,), {"wanted": (node.index, name)})))
    tracer = again.tracer
    return tracer.held if isinstance(tracer, _Holding) else None
