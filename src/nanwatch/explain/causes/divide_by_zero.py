"""Division by zero: a norm, a variance, a range, a degree or a target that is zero."""

from __future__ import annotations

import torch

from nanwatch.explain.case import Case
from nanwatch.explain.causes import empty_selection
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.derivative import saturated
from nanwatch.explain.doubts import certainty, doubts
from nanwatch.explain.mechanism import DIVIDE_BY_ZERO, DIVISIONS, NORMS, UNKNOWN
from nanwatch.explain.provenance import Seen, how_many, is_derivative, made_by, seen
from nanwatch.explain.remedies import offer
from nanwatch.explain.text import Text
from nanwatch.records import Remedy

PAGE = Page(
    title=Text("Division by zero", "除以零"),
    meaning=Text(
        "Something was divided by zero: x / 0 is Inf, 0 / 0 is NaN. The divisor is mostly a measure of "
        "spread or size that can vanish: the norm of a zero vector, the standard deviation of a constant "
        "column, the range of a flat image, the degree of an isolated node, a relative error with a true "
        "value of 0.",
        "有东西被除以了零：x / 0 得 Inf，0 / 0 得 NaN。除数多半是会变成零的大小或离散程度：零向量的范数、常"
        "数列的标准差、平坦图像的取值范围、孤立节点的度、真实值为 0 的相对误差。",
    ),
    proof=Text("The divisor is 0 where the quotient is bad.", "商异常处，除数为 0。"),
    cures=Text(
        "Decide what the quotient should be when the divisor is zero and write that: x / d.clamp(min=eps), "
        "x / (d + eps), F.normalize(x, eps=...), or where(d > 0, x / where(d > 0, d, 1), 0). The eps must "
        "be one that the dtype can hold: 1e-12 is 0 in float16.",
        "先确定除数为零时商应该是什么，再写出来：x / d.clamp(min=eps)、x / (d + eps)、F.normalize(x, "
        "eps=...)，或 where(d > 0, x / where(d > 0, d, 1), 0)。eps 必须是该 dtype 能表示的：1e-12 在 "
        "float16 中就是 0。",
    ),
    examples=(
        "fwd_normalize_zero_vector",
        "data_constant_column",
        "fwd_gcn_isolated_node",
        "loss_mape_zero_target",
    ),
)
WHY = Text(
    "{op} divides by zero: {zeros} of {count} values of its divisor are 0{maker}.",
    "{op} 除以了零：除数的 {count} 个值中有 {zeros} 个为 0{maker}。",
)
BOUNDED = Text(
    "{op} divides by zero in the forward pass; what follows makes a finite number of the infinity, so that "
    "the loss does not show it, but the derivative of {op} divides by the same zero.",
    "{op} 在前向中除以了零；其后的运算把无穷变成了有限的数，所以损失看不出来，但 {op} 的导数又除以了同一个"
    "零。",
)
MADE = Text(", and {maker} made them", "，由 {maker} 得到")
NUMBER = Text("{op} divides by the number 0.", "{op} 除以了数字 0。")
SPREAD = Text(
    "{op} is taken over {count} value(s): it divides by the number of values less {correction}, which is 0.",
    "{op} 只有 {count} 个值：它要除以数量减 {correction}，结果为 0。",
)
FLAT = Text(
    "{op} divides by the spread of its input, with eps = {eps:g}; {zeros} of {count} groups have none.",
    "{op} 以 eps = {eps:g} 除以输入的离散程度；{count} 组中有 {zeros} 组离散程度为零。",
)
PARTLY = Text("it does not explain every bad value", "它不能解释所有异常值")
PLAIN = Text("a plain number of the program", "程序中的一个普通数字")
COUNT = Text("the divisor looks like a count of nothing", "除数像是一个为零的计数")
DOUBT = Text("open: {what}", "存疑：{what}")


def weigh(case: Case) -> Claim | Against | None:
    if case.birth is None:
        return None
    if case.birth.name in NORMS:
        return _flat(case)
    if case.birth.name == "_weight_norm_interface":
        return _zero_row(case)
    if case.mechanism.kind not in (DIVIDE_BY_ZERO, UNKNOWN):
        return None
    found = seen(case)
    if found is None or found.mechanism.kind != DIVIDE_BY_ZERO:
        return None
    if is_derivative(case, found):
        return _before_it_was_bounded(case)
    operand = found.mechanism.operand
    if operand == "correction":
        values, made = found.birth.tensor("self"), found.birth.output
        count = 0 if values is None or made is None else values.numel() // max(1, made.numel())
        why = SPREAD.say(op=found.birth.name, count=count, correction=count)
        return Claim("proved", why, (), 1.0)
    open_questions = doubts(case, found, operand)
    if not isinstance(found.birth.arguments.get(operand), torch.Tensor):
        open_questions.append(PLAIN.say())
    nothing = empty_selection.weigh(case)
    if isinstance(nothing, Claim) and nothing.certainty == "likely":
        open_questions.append(COUNT.say())
    if found.mechanism.share < 0.99:
        open_questions.append(PARTLY.say())
    return Claim(
        certainty(case, found, open_questions),
        _why(found, operand),
        tuple(DOUBT.say(what=d) for d in open_questions),
        1.0,
    )


def _before_it_was_bounded(case: Case) -> Claim | None:
    """The op of the forward pass divides by zero, and its derivative once more."""
    bounded = saturated(case)
    forward = None if bounded is None else bounded.forward
    if forward is None or forward.base not in DIVISIONS:
        return None
    divisor = forward.given.get(DIVISIONS[forward.base])
    if divisor is None or divisor.min is None or divisor.max is None or not divisor.min <= 0 <= divisor.max:
        return None
    return Claim("likely", BOUNDED.say(op=forward.base), (), 1.0)


def _why(found: Seen, operand: str) -> str:
    value = found.birth.arguments.get(operand)
    if not isinstance(value, torch.Tensor):
        return NUMBER.say(op=found.birth.name)
    zeros, count = how_many(found.birth, operand)
    makers = [] if found.node is None else list(made_by(found.lineage, found.node, operand))
    maker = MADE.say(maker=makers[-1].base) if makers else ""
    return WHY.say(op=found.birth.name, zeros=zeros, count=count, maker=maker)


def _flat(case: Case) -> Claim | None:
    """A normalisation over values that are all alike, without an eps."""
    birth = case.birth
    assert birth is not None
    eps = birth.number("eps")
    values = birth.tensor("input")
    if eps is None or values is None or birth.bad is None or birth.op.bad_inputs or eps > 0:
        return None
    groups = birth.bad.reshape(birth.bad.shape[0], -1).any(dim=1) if birth.bad.dim() else birth.bad.reshape(1)
    why = FLAT.say(op=birth.name, eps=eps, zeros=int(groups.sum()), count=groups.numel())
    return Claim("likely", why, (), 1.0)


def _zero_row(case: Case) -> Claim | None:
    """Fused normalisations of a weight: a row whose length is zero."""
    birth = case.birth
    assert birth is not None
    if birth.op.bad_inputs:
        return None
    values = birth.tensor("v")
    if values is None:
        return None
    rows = values.detach().reshape(values.shape[0], -1).norm(dim=1)
    zeros = int((rows == 0).sum())
    if not zeros:
        return None
    return Claim("proved", WHY.say(op=birth.name, zeros=zeros, count=rows.numel(), maker=""), (), 1.0)


def remedies(case: Case) -> list[Remedy]:
    zeros, count = (1, 1) if case.birth is None else how_many(case.birth, case.mechanism.operand)
    counts = ("max-with-one",) if zeros < count else ()  # of nothing but zeros nobody can tell
    return offer(case, "clamp-divisor", "larger-eps", *counts, "drop-bad-rows", "clean-data")
