"""A mask's large negative constant became -inf: too large for the dtype, or two masks added."""

from __future__ import annotations

import torch

from nanwatch.explain.case import Case
from nanwatch.explain.causes.overflow import dtype_name
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.infinities import masked_row
from nanwatch.explain.masks import MaskConstant, mask_constant
from nanwatch.explain.remedies import offer
from nanwatch.explain.text import Text
from nanwatch.records import Remedy

PAGE = Page(
    title=Text("A mask's constant became -inf", "掩码常数变成了 -inf"),
    meaning=Text(
        "Instead of -inf a large negative number was chosen to hide positions, so that a row with nothing "
        "left would still be finite. But -1e9 is beyond float16 and becomes -inf there; and finfo.min plus "
        "another mask, or times a temperature, is beyond any dtype. The guard is gone: a row that is "
        "masked everywhere is all -inf, and its softmax NaN; or 0 * -inf in a loss.",
        "为了让完全被遮住的行仍然有限，程序没有用 -inf，而是用一个很大的负数来遮住位置。但 -1e9 超出 "
        "float16 的范围，变成 -inf；finfo.min 再加一个掩码，或再乘以温度，更是超出任何类型。保护失效：整行"
        "被遮住的行全是 -inf，softmax 得到 NaN；或者在损失中出现 0 * -inf。",
    ),
    proof=Text(
        "The fill value against the smallest number of the dtype; and the step with a value that the dtype "
        "can hold, which runs finite.",
        "将填充值与该类型的最小值比较；并换成该类型能表示的值后重新运行这一步，结果有限。",
    ),
    cures=Text(
        "Fill with torch.finfo(scores.dtype).min once, after everything that scales or adds; combine masks "
        "as booleans before filling. Build the mask in the dtype of the scores, or add it in float32. And "
        "decide what a row with nothing left should give.",
        "在所有缩放和相加之后，用 torch.finfo(scores.dtype).min 填充一次；多个掩码先按布尔值合并再填充。"
        "掩码与 scores 用同一类型构造，或在 float32 中相加。并且明确规定整行被遮住时应得到什么。",
    ),
    examples=("fwd_half_padded_attention", "fwd_mask_min_plus_min_bf16", "infer_sharpened_attention"),
)

WHY = Text(
    "{op} made -inf of the mask constant {operand} = {value:.5g} at {count} places: the smallest value of "
    "{dtype} is {least:.5g}.",
    "{op} 在 {count} 处把掩码常数 {operand} = {value:.5g} 变成了无穷：{dtype} 的最小值是 {least:.5g}。",
)
WHY_LOST = Text(
    "Line {line} writes {value:g} into {dtype}, whose smallest value is {least:.5g}: what is stored is "
    "{sign}inf.",
    "第 {line} 行把 {value:g} 写入 {dtype}，其最小值为 {least:.5g}：实际存下的是 {sign}inf。",
)
BOUNDED = Text("the step with that constant bounded: {outcome}", "限制该常数后重新运行：{outcome}")


def weigh(case: Case) -> Claim | Against | None:
    mask = mask_constant(case)
    if mask is None or case.birth is None:
        return None
    if mask.lost is not None:
        return _lost(case, mask)
    if case.located.by == "live trace" and case.outcome("repeat").finite:
        return None
    bounded = case.outcome("operand-bounded")
    evidence = (BOUNDED.say(outcome=bounded.text),) if bounded.text else ()
    dtype = case.birth.dtype or torch.float32
    why = WHY.say(
        op=case.birth.name,
        operand=mask.operand,
        value=mask.value,
        count=mask.count,
        dtype=dtype_name(dtype),
        least=torch.finfo(dtype).min,
    )
    return Claim("likely" if bounded.finite is False else "proved", why, evidence, 2.0)


def _lost(case: Case, mask: MaskConstant) -> Claim | None:
    lost = mask.lost
    if lost is None:
        return None
    outcome = case.outcome("fill-values")
    why = WHY_LOST.say(
        line=lost.line or "?",
        value=lost.constant,
        dtype=dtype_name(lost.dtype),
        least=torch.finfo(lost.dtype).min,
        sign="-" if lost.constant < 0 else "+",
    )
    evidence = (BOUNDED.say(outcome=outcome.text),) if outcome.text else ()
    if outcome.finite:
        return Claim("proved", why, evidence, 2.0)
    return Claim("likely" if masked_row(case) is not None else "possible", why, evidence, 2.0)


def remedies(case: Case) -> list[Remedy]:
    return offer(case, "finite-mask", "safe-masked-softmax", "clamp-scores", "upcast-op", "full-precision")
