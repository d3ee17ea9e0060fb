"""NaN from the branch that `where`, a mask, an index or a clamp did not take: the value was thrown away, its
gradient was not."""

from __future__ import annotations

from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.derivative import derivative_of, discarded, is_masked_softmax
from nanwatch.explain.doubts import happens_again
from nanwatch.explain.remedies import offer
from nanwatch.explain.text import Text
from nanwatch.records import Remedy

PAGE = Page(
    title=Text("A gradient through the branch not taken", "梯度穿过了未被选中的分支"),
    meaning=Text(
        "torch.where(ok, f(x), 0) computes f everywhere and then throws part of it away. In the backward "
        "pass the discarded part gets a gradient of exactly zero, and f passes it on: zero times the "
        "infinite slope of f at a point outside its domain is NaN. Multiplying by a 0/1 mask, indexing, "
        "masked_fill, clamp and nan_to_num do the same. The loss looks fine, the gradients are NaN.",
        "torch.where(ok, f(x), 0) 会处处计算 f，再丢弃其中一部分。反向传播时被丢弃的部分收到恰好为零的梯度，"
        "f 再把它往回传：零乘以 f 在定义域外的无穷斜率就是 NaN。乘以 0/1 掩码、索引、masked_fill、clamp 和 "
        "nan_to_num 也是如此。损失看起来正常，梯度却是 NaN。",
    ),
    proof=Text(
        "The first bad value is born in the derivative of an op whose forward value at that place can be "
        "changed without any change of the loss.",
        "第一个异常值产生于某个算子的导数中，而该算子在该处的前向值可以任意改动，损失都不变。",
    ),
    cures=Text(
        "Make the operand harmless before the op, not its result after it: "
        "safe = torch.where(ok, x, 1.0); y = torch.where(ok, f(safe), 0.0) (the double where). "
        "Or select the good rows first and compute only those.",
        "在算子之前让操作数变得无害，而不是在之后处理结果：safe = torch.where(ok, x, 1.0)；"
        "y = torch.where(ok, f(safe), 0.0)（双重 where）。或者先选出有效的行，只计算它们。",
    ),
    examples=("bwd_where_log", "bwd_clipped_root", "bwd_relative_error", "bwd_padded_lengths"),
)
WHY = Text(
    "At {places} place(s) the value of {op} is discarded before the loss, but its gradient is not: zero "
    "times the infinite derivative of {op} is NaN.",
    "有 {places} 处 {op} 的值在到达损失之前就被丢弃，但梯度没有：零乘以 {op} 的无穷导数得到 NaN。",
)
LEFT_NAN = Text(
    "At {places} place(s) the NaN that {op} made, or was given, is discarded before the loss, but its "
    "gradient is not: zero times NaN is NaN.",
    "有 {places} 处 {op} 产生或得到的 NaN 在到达损失之前就被丢弃，但梯度没有：零乘以 NaN 得到 NaN。",
)
UNUSED = Text(
    "another value of {op} at these places leaves the loss as it is", "改动 {op} 在这些位置的值，损失保持不变"
)
HIDDEN = Text("{op} made non-finite values that the loss does not show", "{op} 产生了损失中看不到的非有限值")
USED = Text("the loss depends on the value whose gradient is bad", "损失依赖梯度异常处的值")


def weigh(case: Case) -> Claim | Against | None:
    found = derivative_of(case)
    if found is None or not (found.singular or found.hidden):
        return None
    unused = discarded(case, found)
    if unused is False:
        return Against(USED.say())
    evidence = [HIDDEN.say(op=found.name)] if found.hidden else []
    if unused:
        evidence.append(UNUSED.say(op=found.name))
    why = (LEFT_NAN if found.nan else WHY).say(op=found.name, places=found.places)
    if is_masked_softmax(found.forward):
        return Claim("possible", why, tuple(evidence), 1.0)
    sure = unused is True and happens_again(case, found.found)
    certainty = "proved" if sure else ("likely" if found.hidden else "possible")
    return Claim(certainty, why, tuple(evidence), 2.0)


def remedies(case: Case) -> list[Remedy]:
    return offer(
        case, "double-where", "bounded-exp", "clamp-domain", "clamp-divisor", "clamp-log", "drop-bad-rows"
    )
