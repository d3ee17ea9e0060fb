"""The forward value is fine and its derivative is not: a square root, a norm, a power, an arc cosine at
the one point where its slope is infinite."""

from __future__ import annotations

from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.derivative import derivative_of, discarded, is_masked_softmax
from nanwatch.explain.doubts import happens_again, narrow_before
from nanwatch.explain.remedies import offer
from nanwatch.explain.text import Text
from nanwatch.records import Remedy

PAGE = Page(
    title=Text("A derivative that is infinite at this point", "在该点导数为无穷大"),
    meaning=Text(
        "The loss is finite; the gradient is not. Some functions have a point where they are perfectly well "
        "defined and their slope is not: sqrt(0), a norm of a zero vector written by hand, x**0.3 at 0, "
        "acos(1), atan2(0, 0), the singular vectors of a matrix with repeated singular values. Autograd "
        "multiplies the incoming gradient by that slope: a finite number times infinity is Inf, zero times "
        "infinity is NaN.",
        "损失是有限的，梯度却不是。有些函数在某一点取值正常，斜率却没有定义：sqrt(0)、手写的零向量范数、"
        "x**0.3 在 0 处、acos(1)、atan2(0, 0)、有重复奇异值的矩阵的奇异向量。自动求导把传入的梯度乘以这个斜"
        "率：有限数乘无穷得 Inf，零乘无穷得 NaN。",
    ),
    proof=Text(
        "The forward pass is finite, the first non-finite value appears in the backward pass, in the "
        "derivative of that op, at the point where it is infinite; and the loss does depend on the value "
        "there.",
        "前向有限；第一个非有限值出现在反向传播中，正是该算子在导数为无穷的点上的导数；并且损失确实依赖该处"
        "的值。",
    ),
    cures=Text(
        "Keep the operand away from the point: sqrt(x + eps) or sqrt(x.clamp(min=eps)) instead of sqrt(x), "
        "with the eps inside; clamp the argument of acos to -1 + eps .. 1 - eps; use "
        "torch.linalg.vector_norm, whose gradient at zero is defined as zero, or the squared length if that "
        "will do. An eps added outside, sqrt(x) + eps, does not help.",
        "让操作数避开这一点：用 sqrt(x + eps) 或 sqrt(x.clamp(min=eps)) 代替 sqrt(x)，eps 要放在里面；把 "
        "acos 的自变量截断到 -1 + eps .. 1 - eps；使用 torch.linalg.vector_norm（它在零处的梯度定义为零），"
        "或在可行时改用长度的平方。把 eps 加在外面（sqrt(x) + eps）没有用。",
    ),
    examples=(
        "bwd_sqrt_of_sum_of_squares",
        "bwd_acos_clamped_to_one",
        "bwd_fractional_power",
        "bwd_wind_speed",
    ),
)
WHY = Text(
    "The forward value of {op} is finite, but at {places} place(s) it lies where the derivative of {op} is "
    "infinite.",
    "{op} 的前向值有限，但有 {places} 处正好落在 {op} 的导数为无穷大的点上。",
)
NEAR = Text(
    "At {places} place(s) the operand of {op} is so near the point where its derivative is infinite that the "
    "gradient leaves the range of the dtype.",
    "有 {places} 处 {op} 的操作数离导数为无穷大的点太近，梯度超出了该 dtype 的范围。",
)
FINITE = Text("the loss is finite; the first bad value is in {node}", "损失有限；第一个异常值出现在 {node}")
USED = Text("the loss depends on the value there", "损失依赖该处的值")
NOT_USED = Text(
    "the loss does not depend on the value there: it is discarded", "损失并不依赖该处的值：它已被丢弃"
)


def weigh(case: Case) -> Claim | Against | None:
    found = derivative_of(case)
    if found is None or is_masked_softmax(found.forward) or found.hidden:
        return None
    unused = discarded(case, found)
    if unused:
        return Against(NOT_USED.say())
    node = case.birth.op.node if case.birth is not None else ""
    evidence = [FINITE.say(node=node or "")]
    if unused is False:
        evidence.append(USED.say())
    if not found.singular:
        return Claim("likely", NEAR.say(op=found.name, places=found.places), tuple(evidence), 2.0)
    sure = unused is False and not narrow_before(found.found, "") and happens_again(case, found.found)
    return Claim(
        "proved" if sure else "likely", WHY.say(op=found.name, places=found.places), tuple(evidence), 2.0
    )


def remedies(case: Case) -> list[Remedy]:
    edits = ("eps-inside-sqrt", "clamp-domain", "clamp-log", "clamp-divisor", "double-where")
    return offer(case, *edits, "split-eigenvalues")
