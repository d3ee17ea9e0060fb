"""A function was asked for a value that it has not: the square root or the logarithm of a negative, the
arc cosine beyond 1, a fractional power of a negative."""

from __future__ import annotations

from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.doubts import certainty, doubts
from nanwatch.explain.mechanism import INVALID_DOMAIN, UNKNOWN
from nanwatch.explain.provenance import is_derivative, made_by, seen
from nanwatch.explain.remedies import offer
from nanwatch.explain.remedies.operands import function_called
from nanwatch.explain.remedies.source_edit import expression_at
from nanwatch.explain.text import Text
from nanwatch.records import Remedy

PAGE = Page(
    title=Text("Outside the domain of the function", "超出函数的定义域"),
    meaning=Text(
        "sqrt and log of a negative number, acos and asin beyond -1 .. 1, a fractional power of a negative, "
        "lgamma at a pole: there is no real number to return, so the op returns NaN (or Inf at a pole). "
        "Often the operand should have been inside and rounding pushed it out: a variance computed as E[x²] "
        "- E[x]², a cosine of 1.0000001; sometimes nothing keeps a learned value positive.",
        "对负数开方或取对数、acos 与 asin 的自变量超出 -1 .. 1、负数的分数次幂、lgamma 的极点：没有实数可以"
        "返回，于是算子给出 NaN（在极点给出 Inf）。操作数往往本该在定义域内，只是舍入误差把它推了出去：用 "
        "E[x²] - E[x]² 计算的方差、等于 1.0000001 的余弦；有时则是没有任何约束让学到的值保持为正。",
    ),
    proof=Text("The operand where the result is bad.", "结果异常处的操作数。"),
    cures=Text(
        "Clamp the operand into the domain (clamp(min=0), clamp(-1 + eps, 1 - eps)), compute variances with "
        "torch.var, and let the model make positive numbers by softplus or exp rather than by hope.",
        "把操作数截断到定义域内（clamp(min=0)、clamp(-1 + eps, 1 - eps)），用 torch.var 计算方差，"
        "并用 softplus 或 exp 让模型输出正数，而不是听天由命。",
    ),
    examples=("fwd_acos_out_of_domain", "loss_lbfgs_closure_log", "loss_lgamma_pole"),
)
WHY = Text(
    "{op} has no value for {value:.6g}; {places} of {count} values of its operand are outside of its domain.",
    "{op} 在 {value:.6g} 处没有定义；其操作数 {count} 个值中有 {places} 个超出定义域。",
)
NO_VALUE = Text(
    "{function} has no value for what it was given: torch itself writes NaN there.",
    "{function} 对所给的操作数没有定义：torch 自己在那里写入了 NaN。",
)
WRITES = ("where", "masked_fill", "masked_fill_", "full", "full_like", "fill_")
MADE = Text("the operand was made by {maker}", "操作数由 {maker} 得到")
MOMENT = Text("a second moment of the optimizer", "优化器的二阶矩")
DOUBT = Text("open: {what}", "存疑：{what}")


def weigh(case: Case) -> Claim | Against | None:
    function = _written_by_torch(case)
    if function:
        return Claim("likely", NO_VALUE.say(function=function), (), 1.0)
    if case.birth is None or case.mechanism.kind not in (INVALID_DOMAIN, UNKNOWN):
        return None
    found = seen(case)
    if found is None or found.mechanism.kind != INVALID_DOMAIN or is_derivative(case, found):
        return None
    operand, value = found.mechanism.operand, found.mechanism.value
    bad = found.birth.bad
    why = WHY.say(
        op=found.birth.name,
        value=0.0 if value is None else value,
        places=0 if bad is None else round(float(bad.sum()) * found.mechanism.share),
        count=0 if bad is None else bad.numel(),
    )
    open_questions = doubts(case, found, operand)
    if case.phase == "optimizer" and "sqrt" in found.birth.name:
        open_questions.append(MOMENT.say())
    makers = [] if found.node is None else list(made_by(found.lineage, found.node, operand))
    evidence = [MADE.say(maker=m.base) for m in makers[:1]] + [DOUBT.say(what=d) for d in open_questions]
    return Claim(certainty(case, found, open_questions), why, tuple(evidence), 1.0)


def _written_by_torch(case: Case) -> str:
    """The function that the program calls, if torch itself writes the constant NaN in it: that is how it says
    that there is no value, as for the logarithm of a determinant below zero."""
    op = case.located.op
    if op is None or case.birth is None or case.birth.name not in WRITES or not op.makes_nan:
        return ""
    if not any(o.from_python for o in op.bad_inputs) or len(op.bad_inputs) > 1:
        return ""
    expression = expression_at(op.stack)
    function = "" if expression is None else function_called(expression.node)
    return "" if function in WRITES else function


def remedies(case: Case) -> list[Remedy]:
    edits = ("clamp-domain", "clamp-log", "eps-inside-sqrt")
    return offer(case, *edits, "stay-in-domain", "drop-bad-rows", "clean-data")
