"""A mean, a loss or a ratio over nothing: no supervised token, a mask that sums to zero, an empty group."""

from __future__ import annotations

import torch

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.doubts import changed_since, happens_again
from nanwatch.explain.lineage import Node
from nanwatch.explain.mechanism import DIVIDE_BY_ZERO
from nanwatch.explain.provenance import (
    COUNT,
    HANDS_ON,
    MARKS,
    Seen,
    empty_ancestor,
    how_many,
    is_reduced,
    is_state,
    made_by,
    mixes_state,
    nature,
    only_data,
    same_memory,
    seen,
    summed_weights,
    whole_and_positive,
    zero_or_one,
    zeros_at_bad,
)
from nanwatch.explain.remedies import offer
from nanwatch.explain.state import all_entries
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import tensors_in

PAGE = Page(
    title=Text("A mean over nothing", "对空集求平均"),
    meaning=Text(
        "Something was averaged over no values at all, and 0 / 0 is NaN: a batch in which every label is "
        "ignored, a mask that is zero everywhere in a row, an expert that got no token, a crop of no "
        "pixels, the standard deviation of a single value. The code is right for every batch that holds "
        "something.",
        "对零个值求了平均，而 0 / 0 是 NaN：整批标签都被忽略、某一行的掩码全为零、某个专家没有分到任何 "
        "token、裁剪区域没有像素、只有一个值的标准差。只要批里有东西，代码就是对的。",
    ),
    proof=Text("The count that is zero.", "那个为零的计数。"),
    cures=Text(
        "Divide by max(count, 1), so that an empty selection contributes zero; skip the term when nothing is "
        "selected; or see to it that no batch is empty (drop_last, a filter in the collate function). For "
        "cross_entropy: reduction='sum' divided by the number of labels, at least 1.",
        "除以 max(count, 1)，让空的选择贡献为零；没有选中任何东西时跳过该项；或保证不会出现空批（drop_last、"
        "在 collate 函数中过滤）。对 cross_entropy：用 reduction='sum'，再除以标签数（至少为 1）。",
    ),
    examples=(
        "loss_all_labels_ignored",
        "loss_masked_mean_empty",
        "fwd_masked_mean_pooling",
        "fwd_moe_empty_expert",
    ),
)
EMPTY = Text(
    "{op} was given no values at all: a tensor of shape {shape}.", "{op} 没有得到任何值：张量形状为 {shape}。"
)
IGNORED = Text(
    "None of the {count} labels counts: all are {ignored}, or of a class with weight 0.",
    "{count} 个标签没有一个计入：它们全是 {ignored}，或所属类别的权重为 0。",
)
SPREAD = Text(
    "{op} over {count} value(s) with a correction of {correction:g} leaves nothing to divide by.",
    "对 {count} 个值求 {op}（修正量 {correction:g}），没有可以作除数的数量。",
)
COUNTED = Text(
    "{op} divides by a count of what was selected, and {zeros} of {count} such counts are 0.",
    "{op} 除以被选中的个数，而 {count} 个计数中有 {zeros} 个为 0。",
)
WEIGHTS = Text(
    "{op} is a mean under weights, and {zeros} of {count} sums of weights are 0: all weights there are zero.",
    "{op} 是加权平均，而 {count} 个权重和中有 {zeros} 个为 0：那里的权重全为零。",
)
NOTHING = Text(
    "{op} divides by 0, and what it divides was computed from a tensor without values, of shape {shape}.",
    "{op} 除以 0，而被除数来自一个没有任何值的张量，形状为 {shape}。",
)
LENGTH = Text(
    "{op} divides a total of 0 by a count of 0: {zeros} of {count} divisors are 0.",
    "{op} 用为 0 的总和除以为 0 的个数：{count} 个除数中有 {zeros} 个为 0。",
)
MADE = Text("the count was made by {maker}", "计数由 {maker} 得到")
SIGNED = Text(
    "the weights cancel, they are not empty: some are negative", "权重是相互抵消，并非为空：其中有负数"
)
LOSSES = (
    "nll_loss_forward",
    "nll_loss2d_forward",
    "nll_loss",
    "nll_loss2d",
    "nll_loss_nd",
    "cross_entropy_loss",
)
USUALLY_IGNORED = -100
FILLED = ("zeros", "full", "empty", "scalar_tensor")
"""Ops that make of nothing what is filled in later."""
SPREADS = ("var", "std", "var_mean", "std_mean")


def weigh(case: Case) -> Claim | Against | None:
    if case.birth is None or (case.phase == "backward" and case.birth.op.node is not None):
        return None
    found = seen(case)
    if found is None:
        return None
    claim = _nothing_given(found.birth) or _nothing_supervised(found.birth) or _nothing_spread(found.birth)
    if claim is not None:
        return claim if happens_again(case, found) else _likely(claim)
    if found.mechanism.kind != DIVIDE_BY_ZERO or case.phase == "optimizer":
        return None
    return _zero_count(case, found)


def _likely(claim: Claim) -> Claim:
    return Claim("likely", claim.why, claim.evidence, claim.weight)


def _nothing_given(birth: BirthOp) -> Claim | None:
    """An op over a tensor without values that made NaN, or -inf, of it."""
    if birth.output is None or not birth.output.numel() or birth.op.bad_inputs:
        return None
    for name, tensor in birth.tensors.items():
        if tensor.numel() == 0 and name in ("self", "input", "data", "target"):
            return Claim("proved", EMPTY.say(op=birth.name, shape=list(tensor.shape)), (), 2.0)
    lengths = birth.tensor("lengths")
    if birth.name == "segment_reduce" and lengths is not None and bool((lengths == 0).any()):
        zeros = int((lengths == 0).sum())
        why = COUNTED.say(op=birth.name, zeros=zeros, count=lengths.numel())
        return Claim("proved", why, (), 2.0)
    return None


def _nothing_supervised(birth: BirthOp) -> Claim | None:
    target, scores = birth.tensor("target"), birth.tensor("self")
    if birth.name not in LOSSES or target is None or scores is None or birth.op.bad_inputs:
        return None
    if target.is_floating_point():
        return None  # a probability for each class: none is left out
    ignored = birth.number("ignore_index")
    ignored = USUALLY_IGNORED if ignored is None else ignored
    counts = target != ignored
    weight = birth.tensor("weight")
    if weight is not None:
        counts &= weight[target.clamp(0, weight.numel() - 1)] != 0
    if bool(counts.any()):
        return None
    why = IGNORED.say(count=target.numel(), ignored=int(ignored))
    return Claim("proved", why, (), 2.0)


def _nothing_spread(birth: BirthOp) -> Claim | None:
    values = birth.tensor("self")
    if birth.name not in SPREADS or values is None or birth.output is None or birth.op.bad_inputs:
        return None
    count = values.numel() // max(1, birth.output.numel())
    correction = birth.number("correction")
    correction = 1.0 if correction is None else correction
    if count - correction > 0 or not birth.output.numel():
        return None
    return Claim("proved", SPREAD.say(op=birth.name, count=count, correction=correction), (), 2.0)


def _zero_count(case: Case, found: Seen) -> Claim | Against | None:
    """A division by zero: was the divisor a count?"""
    birth, node, lineage = found.birth, found.node, found.lineage
    operand = found.mechanism.operand
    zeros, count = how_many(birth, operand)
    sure = happens_again(case, found) and not changed_since(case)
    numbers = {"op": birth.name, "zeros": zeros, "count": count}
    if node is None:  # a fraction could be anything: a deviation, a norm
        divisor = birth.tensor(operand)
        fraction = divisor is not None and divisor.is_floating_point()
        return None if fraction else _lengths(case, found, operand, numbers)
    quotient = birth.name in ("div", "true_divide", "divide")
    if quotient:
        nothing = empty_ancestor(lineage, node, "self") or empty_ancestor(lineage, node, operand)
        if nothing is not None:
            why = NOTHING.say(op=birth.name, shape=list(nothing.shape))
            return Claim("proved" if sure else "likely", why, (), 2.0)
        weights = summed_weights(lineage, node)
        if weights is not None:
            marks = zero_or_one(weights) or _marks(found, operand)
            if not marks and mixes_state(case, lineage, node, "self"):
                return None  # features, scaled by their own size
            marks = marks or only_data(case, lineage, node, operand)
            return _weighted(found, weights.min, marks, numbers, sure)
    if is_state(case, lineage, node, operand):
        return None
    if _marks(found, operand) or _handed_to_python(case, found, operand):
        makers = [m.base for m in made_by(lineage, node, operand)]
        evidence = tuple(MADE.say(maker=m) for m in makers[-1:])
        weight = 2.0 if operand in node.given else 3.5  # a number that was counted is no setting
        return Claim(_certainty(found, operand, sure), COUNTED.say(**numbers), evidence, weight)
    plain = all(m.base in HANDS_ON for m in made_by(lineage, node, operand))
    return _lengths(case, found, operand, numbers) if quotient and plain else None


def _weighted(
    found: Seen, least: float | None, marks: bool, numbers: dict[str, object], sure: bool
) -> Claim | Against:
    """sum(x * w) / sum(w): nothing is selected when no weight is negative and their sum is zero."""
    if least is not None and least < 0:
        return Against(SIGNED.say())
    certainty = "proved" if sure and marks else "likely"
    if certainty == "proved" and _is_graph(found):
        certainty = "likely"
    return Claim(certainty, WEIGHTS.say(**numbers), (), 2.0)


def _is_graph(found: Seen) -> bool:
    """Rows of a square matrix of ones and zeros, multiplied with features: the degrees of nodes."""
    assert found.node is not None
    above = [m.base for m in made_by(found.lineage, found.node, "self")]
    return _is_square(found) and any(base in ("mm", "bmm") for base in above)


def _is_square(found: Seen) -> bool:
    """Whether the marks that were counted are a square matrix: who is whose neighbour."""
    assert found.node is not None
    for maker in made_by(found.lineage, found.node, "other"):
        measured = maker.given.get("self")
        if maker.base in ("sum", "mean") and measured is not None:
            return len(measured.shape) >= 2 and measured.shape[-1] == measured.shape[-2]
    return False


def _marks(found: Seen, operand: str) -> bool:
    """Whether the divisor is marks that were added up, or a count from outside in whole numbers."""
    assert found.node is not None
    measured = found.node.given.get(operand)
    maker = found.lineage.maker(found.node, operand)
    if measured is None or maker is None:
        return False
    return nature(found.lineage, found.node, operand) in (COUNT, MARKS)


def _certainty(found: Seen, operand: str, sure: bool) -> str:
    """A count by which a total is divided is a mean over nothing. The same count turned round, or
    dividing its own marks, may as well be a degree or a scale."""
    assert found.node is not None
    if found.birth.name not in ("div", "true_divide", "divide"):
        return "possible"
    if "other" not in found.node.given:
        return "likely"
    if is_reduced(found.lineage, found.node, "self") or "self" not in found.node.given:
        return "proved" if sure and not _is_graph(found) else "likely"
    return "possible" if _is_square(found) else "likely"


def _handed_to_python(case: Case, found: Seen, operand: str) -> bool:
    """The divisor is a plain 0 that was a count of marks before the program asked for it as a number."""
    value = found.birth.arguments.get(operand)
    if isinstance(value, torch.Tensor) and value.dim() > 0:
        return False
    assert found.node is not None
    for node in reversed([n for n in found.lineage.nodes.values() if n.index < found.node.index]):
        if node.base == "_local_scalar_dense" and node.returned == 0:
            return _is_count(found, node)
    return _counted_outside(case)


def _counted_outside(case: Case) -> bool:
    """The program counted marks in this step, outside of its models, and the only such count is 0."""
    counts = [
        entry.outputs
        for entry in case.tape.entries
        if getattr(entry.call, "__name__", "") in ("sum", "count_nonzero")
        and isinstance(entry.outputs, torch.Tensor)
        and entry.outputs.numel() == 1
        and not entry.outputs.is_floating_point()
        and any(t.dtype is torch.bool for t in tensors_in(entry.args))
    ]
    return bool(counts) and all(int(c) == 0 for c in counts)


def _is_count(found: Seen, node: Node) -> bool:
    maker = found.lineage.maker(node, "self")
    return maker is not None and nature(found.lineage, node, "self") == COUNT


def _is_enumeration(case: Case, found: Seen) -> bool:
    """What is divided was made out of nothing, as by `arange`, and is no total. (Zeros may be one, to which
    nothing was added.)"""
    makers = made_by(found.lineage, found.node, "self") if found.node is not None else ()
    if any(not maker.inputs and maker.base not in FILLED for maker in makers):
        return True
    keys = {o.key for o in found.birth.op.inputs if o.numbers.name == "self"}
    for entry in reversed(all_entries(case)):
        made = {key_of(t) for t in tensors_in(entry.outputs)} if entry.kind == "op" else set()
        if keys & made and not tensors_in((entry.args, entry.kwargs)):
            return getattr(entry.call, "__name__", "") not in FILLED
    return False


def _lengths(case: Case, found: Seen, operand: str, numbers: dict[str, object]) -> Claim | None:
    """A total of zero divided by a whole number of zero that came from outside: lengths, sizes of groups."""
    birth = found.birth
    value = birth.arguments.get(operand)
    if birth.name not in ("div", "true_divide", "divide") or not zeros_at_bad(birth, "self"):
        return None
    if isinstance(value, torch.Tensor):
        if (
            value.is_complex()
            or not whole_and_positive(value)
            or (value.numel() > 1 and not bool(value.any()))
        ):
            return None
    elif not isinstance(value, int):
        return None
    if same_memory(found, "self", operand) or _is_enumeration(case, found):
        return None
    return Claim("likely", LENGTH.say(**numbers), (), 2.0)


def remedies(case: Case) -> list[Remedy]:
    spread = case.birth is not None and case.birth.name in SPREADS
    wider = ("larger-batch",) if spread else ()
    return offer(case, "max-with-one", "guarded-mean", "clamp-divisor", "skip-batch", "drop-bad-rows", *wider)
