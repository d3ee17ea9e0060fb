"""From a trace to the birth: walk back from the bad loss, gradient or output to the first harmful op.

A birth is an op with finite inputs and a non-finite output, or one that turns a deliberate infinity into
NaN. A deliberate infinity (a mask, a top-k filter, `full(-inf)`) is no birth by itself. Where an op makes a
bad value beside others that it was handed (`Op.fresh`), that is a birth like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from nanwatch.records import Numbers
from nanwatch.replay.multiplied import base_of, multiplied
from nanwatch.replay.trace import Op, Operand, Trace, picks

ADDS_UP = ("sum", "mean")


@dataclass
class Blame:
    """The first harmful op, or the tensor from outside the trace that was already bad when `op` read it."""

    op: Op
    outside: Operand | None = None
    rival: Blame | None = None
    """A birth on the same path, where this is only what was given or written down: the trace does not say
    which of them did the harm."""


def first_harmful(trace: Trace, sinks: list[int], backward: bool = False) -> Blame | None:
    """What made the non-finite values that reached the ops `sinks`. `backward`: the loss was finite, so a
    value that was born and hidden in the forward pass is not to blame, but what let it back in is."""
    path = trace.ancestors(sinks)
    if backward:
        first = _first_in_backward(path)
        return first if first is None else _let_in(trace, first)
    wants_nan = any(o.numbers.nan for i in sinks if i in trace.ops for o in trace.ops[i].outputs)
    candidates = _nan_candidates(trace, path) if wants_nan else []
    candidates += [] if candidates else _inf_candidates(path)
    if candidates and all(map(_is_given, candidates)):
        candidates += [b for b in _inf_candidates(path) if b.outside is None]
    if candidates:
        return _first_of(candidates)
    return _where_a_deliberate_infinity_escapes(path)


def _first_of(candidates: list[Blame]) -> Blame:
    """The earliest. But NaN that were given where they were given in earlier steps, which ended well, are
    innocent if there is a birth; and where they are new, the birth is their rival."""
    births = [b for b in candidates if not _is_given(b)]
    first = min(candidates, key=_age)
    if not births or not _is_given(first):
        return first
    accused = [b for b in candidates if _is_given(b) and not b.op.lived_with]
    birth = min(births, key=_age)
    if not accused or birth.op.index < min(map(_age, accused)):
        return birth
    return replace(min(accused, key=_age), rival=birth)


def _age(blame: Blame) -> int:
    return blame.op.index


def _is_given(blame: Blame) -> bool:
    """NaN in the data, or written down by the program: a missing value."""
    if blame.outside is not None:
        return bool(blame.outside.numbers.nan) and not _is_weight(blame.outside)
    return blame.op.writes_nan_down and blame.op.fresh is None


def _first_in_backward(path: list[Op]) -> Blame | None:
    """The first op of the backward pass whose bad output does not come from another one of it; a view only
    hands on what it was given."""
    made: set[int] = set()
    first = None
    saved: set[int | None] = {op.index for op in path if op.phase not in ("backward", "optimizer")}
    for op in path:
        if op.phase not in ("backward", "optimizer"):
            continue
        if _only_prepares(op, saved):
            saved.add(op.index)  # no gradient has come in yet: it only prepares what the forward pass saved
            continue
        inherited = any(o.source in made for o in op.bad_inputs)
        if inherited or not op.is_view:
            made.add(op.index)
        if first is None and not inherited and not op.is_view:
            first = Blame(op)
    return first


def _only_prepares(op: Op, saved: set[int | None]) -> bool:
    """Whether no gradient has come in yet: the op is given what the forward pass saved, or what was made of
    that."""
    if op.makes_nan or not op.bad_inputs:
        return False
    return all(o.source in saved if o.bad else o.from_forward for o in op.inputs)


def _let_in(trace: Trace, first: Blame) -> Blame:
    """A NaN that the forward pass handed on from call to call, and that only the loss did not look at (rows
    that it ignores), comes in where the first derivative is multiplied with it: what made it is to blame. Not
    so where the very call that made it is differentiated, or the program has discarded it itself:
    `where(x > 0, x.sqrt() / 2, 0)`. NaN in a weight, in rows that the loss leaves out, was there before."""
    if first.op.makes_nan:
        return _bounded_before(trace, first)
    sources = [o.source for o in first.op.bad_inputs if o.numbers.nan and o.source is not None]
    path = [op for op in trace.ancestors(sources) if op.phase not in ("backward", "optimizer")]
    candidates = _nan_candidates(trace, [*path, first.op])
    weights = [b for b in candidates if b.outside is not None and _is_weight(b.outside)]
    if weights:
        return min(weights, key=_age)
    births = [b for b in candidates if b.outside is None and not is_written_down(b.op)]
    if not births:
        return first
    birth = min(births, key=_age)
    return first if birth.op.stack == first.op.stack or _is_discarded(trace, birth.op) else birth


def _bounded_before(trace: Trace, first: Blame) -> Blame:
    """An infinity that the forward pass bounded (a tanh, a gate) is met again where a derivative of 0 is
    multiplied with it: what made it is to blame, or the batch or weight that held it, under the same
    conditions."""
    if not first.op.turns_inf_into_nan:
        return first
    sources = [o.source for o in first.op.bad_inputs if o.source is not None]
    path = [op for op in trace.ancestors(sources) if op.phase not in ("backward", "optimizer")]
    found = [
        b
        for b in _inf_candidates([*path, first.op], first.op)
        if b.outside is not None
        or not (b.op.stack == first.op.stack or is_written_down(b.op) or _is_discarded(trace, b.op))
    ]
    return _as_forward_read_it(trace, min(found, key=_age)) if found else first


def _as_forward_read_it(trace: Trace, blame: Blame) -> Blame:
    """What was brought in from outside came in where the forward pass first read it."""
    if blame.outside is None:
        return blame
    key, ops = blame.outside.key, trace.ops.values()
    readers = (op for op in ops if op.phase not in ("backward", "optimizer"))
    read = next((op for op in readers if any(o.key == key for o in op.bad_inputs)), blame.op)
    return replace(blame, op=read)


def _is_discarded(trace: Trace, birth: Op) -> bool:
    """Whether an op that chooses place by place was given what came of this one, and took something else; and
    nothing else has made numbers of it (a gate), through which it would come back, too."""
    carriers, chosen = {birth.index}, False
    for op in trace.ops.values():
        if op.phase not in ("backward", "optimizer") and any(o.source in carriers for o in op.bad_inputs):
            if op.bad_outputs:
                carriers.add(op.index)
            elif base_of(op) in CHOOSES:
                chosen = True
            elif any("float" in o.numbers.dtype for o in op.outputs):
                return False
    return chosen


CHOOSES = frozenset(("where", "masked_fill", "masked_fill_", "nan_to_num", "nan_to_num_"))


def is_written_down(op: Op) -> bool:
    """A NaN that the program wrote itself is meant."""
    return bool(op.constants) or any(o.from_python for o in op.bad_inputs)


def _nan_candidates(trace: Trace, path: list[Op]) -> list[Blame]:
    found = []
    for op in path:
        outside = _bad_from_outside(op)
        given = outside is not None and bool(outside.numbers.nan)
        if given:
            found.append(Blame(op, outside))
        if op.makes_nan and (op.fresh is not None or not given):
            op.asked_about = _was_asked_about(trace, op)
            behind = [] if op.asked_about or _of_finite_values(op) else _behind(trace, op)
            found.append(min(behind, key=lambda blame: blame.op.index) if behind else Blame(op))
    return found


def _behind(trace: Trace, op: Op) -> list[Blame]:
    """Unwanted infinities of which the op made NaN."""
    return _inf_candidates(trace.ancestors([op.index]), op)


def _of_finite_values(op: Op) -> bool:
    """0 / 0, whatever else the op was handed."""
    return op.fresh is not None and not op.fresh.nan_of_inf


def _inf_candidates(path: list[Op], spoilt: Op | None = None) -> list[Blame]:
    """Infinities that nobody asked for: born of finite values, or brought in from outside. `spoilt`: the op
    that made NaN of them, from which one can tell whether they were a mask."""
    found = []
    data = multiplied(path)
    for op in path:
        outside = _bad_from_outside(op)
        if op.fresh is not None and op.fresh.infinite:
            if not _asked_for(op, spoilt, op.index in data) and _may_have_spoilt(op, spoilt):
                found.append(Blame(op))
        elif outside is not None:
            mask = looks_like_mask(outside.numbers) and op.index not in data
            if _is_weight(outside) or not mask:
                found.append(Blame(op, outside))
        elif op.makes_inf and not op.makes_nan and not _asked_for(op, spoilt, op.index in data):
            found.append(Blame(op))
    infinite = [b for b in found if b.outside is None or _holds_infinities(b.outside)]
    return infinite if infinite or spoilt is not None else found  # no NaN becomes an infinity


def _holds_infinities(operand: Operand) -> bool:
    return bool(operand.numbers.posinf or operand.numbers.neginf)


def _may_have_spoilt(op: Op, spoilt: Op | None) -> bool:
    """Where an op made infinities in some rows beside a mask, and NaN came of others, it is the mask's."""
    if spoilt is None or op.born is None or spoilt.output is None or op.born.shape != spoilt.output.shape:
        return True
    nan = torch.isnan(spoilt.output)
    dims = range(nan.dim())
    return any(bool((nan.any(dim) & op.born.any(dim)).any()) for dim in dims) if nan.dim() else True


def _asked_for(op: Op, spoilt: Op | None, is_data: bool) -> bool:
    """What is deliberate and stays a mask: not a number that the program put into its data, nor the log of
    zeros and ones where it is multiplied or has the other sign; that is a log of zero."""
    if not op.deliberate:
        return False
    if op.constants or op.bad_inputs:
        return not (is_data and op.phase == "data")
    if op.usual:
        return True
    multiplied_by_value = spoilt is not None and base_of(spoilt) == "mul"
    plus = spoilt is not None and any(o.numbers.posinf for o in spoilt.bad_inputs)
    return not (is_data or multiplied_by_value or plus)


def _was_asked_about(trace: Trace, op: Op) -> bool:
    """x * x.isinf().logical_not(): the program knew that x may be infinite and meant to take it out. What it
    does instead, 0 * inf, is its mistake."""
    if base_of(op) != "mul" or not any(not o.bad and o.numbers.min == 0 and _is_mark(o) for o in op.inputs):
        return False
    sources = {o.source for o in op.bad_inputs if o.source is not None}
    readers = [r for source in sources for r in trace.readers(source) if r.index < op.index]
    return any(_asks(reader, sources) for reader in readers)


def _is_mark(operand: Operand) -> bool:
    return operand.numbers.max in (0, 1)


def _asks(op: Op, sources: set[int]) -> bool:
    """`isinf`, `isnan`, or `isfinite`, which compares a tensor with itself."""
    with_itself = base_of(op) == "eq" and len(op.inputs) == 2 and all(o.source in sources for o in op.inputs)
    return base_of(op) in ("isinf", "isnan") or with_itself


def _bad_from_outside(op: Op) -> Operand | None:
    """A non-finite input that no traced op wrote; a number that the program wrote down is the op's own."""
    worst = None
    for operand in op.bad_inputs:
        if operand.from_python or operand.is_a_mask:
            continue
        if operand.source is None and (worst is None or operand.numbers.nan > worst.numbers.nan):
            worst = operand
    return worst


def _is_weight(operand: Operand) -> bool:
    tensor = operand.value
    if tensor is None:
        return False
    return tensor.requires_grad or (tensor._base is not None and tensor._base.requires_grad)


def looks_like_mask(numbers: Numbers) -> bool:
    """Infinities on purpose: no NaN, one sign, and every finite value the same (0 for an additive mask). With
    +inf that one must be 0: 1 / counts is no mask."""
    if numbers.nan or (numbers.posinf and numbers.neginf):
        return False
    return numbers.min is None or (numbers.min == numbers.max and not (numbers.posinf and numbers.min))


def _where_a_deliberate_infinity_escapes(path: list[Op]) -> Blame | None:
    """All infinities were asked for, and yet one arrived: name the op that took it out of its mask. (The log
    of a 0/1 mask is asked for only as long as nothing comes of it.)"""
    unwritten = next((op for op in path if op.makes_inf and not is_written_down(op)), None)
    if unwritten is not None:
        return Blame(unwritten)
    for op in path:
        if not op.bad_inputs or not op.bad_outputs:
            continue
        widest = max(o.numbers.count for o in op.bad_inputs)
        if all(o.numbers.count < widest for o in op.bad_outputs):
            return Blame(_picked_for(op, {each.index: each for each in path}))
    births = [op for op in path if op.makes_inf]
    return Blame(births[0]) if births else (Blame(path[0]) if path else None)


def _picked_for(op: Op, path: dict[int, Op]) -> Op:
    """A sum over entries that were picked by their index: it is the index that met the infinity. (Many
    entries may be picked from a small table, so that their number does not show it.)"""
    source = next((path[o.source] for o in op.bad_inputs if o.source in path), None)
    while source is not None and source.is_view:
        source = next((path[o.source] for o in source.bad_inputs if o.source in path), None)
    return source if source is not None and picks(source) and base_of(op) in ADDS_UP else op


def silent_damage(trace: Trace, step: int) -> list[int]:
    """The ops of this step that turned an overflow into a wrong zero."""
    return [op.index for op in trace.ops.values() if op.silently_wrong and op.step == step]


def hidden_births(trace: Trace, step: int) -> list[tuple[Op, Op]]:
    """(birth, the op that hid it) for what was born in this step and seen by nothing afterwards."""
    found = []
    for op in trace.ops.values():
        if op.step != step or op.deliberate or not (op.makes_nan or op.makes_inf):
            continue
        hider = _hider(trace, op)
        if hider is not None:
            found.append((op, hider))
    return found


def _hider(trace: Trace, birth: Op) -> Op | None:
    """Of the same pass: a derivative that meets the value once more does not hide it."""
    seen = {birth.index}
    waiting = [birth.index]
    hider = None
    while waiting:
        for reader in trace.readers(waiting.pop()):
            if reader.index in seen or (reader.phase == "backward" and birth.phase != "backward"):
                continue
            seen.add(reader.index)
            if reader.hides:
                hider = hider or reader
            else:
                waiting.append(reader.index)
    return hider


def way(trace: Trace, birth: int, sinks: list[int]) -> list[Op]:
    """The ops from the birth (without it) to the nearest of `sinks`, in order."""
    came_from: dict[int, int | None] = {birth: None}
    waiting = [birth]
    goals = set(sinks)
    forward: dict[int, list[int]] = {}
    for op in trace.ops.values():
        for operand in op.bad_inputs:
            if operand.source is not None and op.bad_outputs:
                forward.setdefault(operand.source, []).append(op.index)
    while waiting:
        index = waiting.pop(0)
        if index in goals:
            return _unwind(trace, came_from, index)
        for following in forward.get(index, ()):
            if following not in came_from:
                came_from[following] = index
                waiting.append(following)
    return []


def _unwind(trace: Trace, came_from: dict[int, int | None], index: int) -> list[Op]:
    ops = []
    at: int | None = index
    while at is not None and came_from[at] is not None:
        ops.append(trace.ops[at])
        at = came_from[at]
    return ops[::-1]
