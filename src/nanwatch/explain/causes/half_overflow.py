"""A value left the range of float16, bfloat16 or float8, that float32 would have held."""

from __future__ import annotations

import torch

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.causes.overflow import dtype_name
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.derivative import before_it_was_bounded
from nanwatch.explain.experiments.float32 import overflow_in_data
from nanwatch.explain.history import jumped
from nanwatch.explain.masks import mask_constant
from nanwatch.explain.mechanism import OVERFLOW, mechanism_of
from nanwatch.explain.remedies import offer
from nanwatch.explain.text import Text
from nanwatch.records import Remedy

PAGE = Page(
    title=Text("A value left the range of half precision", "数值超出了半精度的范围"),
    meaning=Text(
        "float16 ends at 65504, float8 at 448 or 57344. A sum of products, the square of 300, a residual "
        "stream that adds up, a loss multiplied by its scale: all of that is an ordinary number in float32 "
        "and Inf here. Inside a norm the damage can be silent: the mean square is Inf, its inverse root 0, "
        "and the output zeros, without any NaN.",
        "float16 最大只到 65504，float8 只到 448 或 57344。乘积之和、300 的平方、不断累加的残差、乘上缩放"
        "因子的损失，在 float32 中都是普通的数，在这里却成了 Inf。在归一化层里这种损害可能悄无声息：均方为"
        " Inf，其平方根的倒数为 0，输出全是 0，却没有任何 NaN。",
    ),
    proof=Text(
        "The same step, with every half value widened to float32, runs finite.",
        "把所有半精度数值都换成 float32 后重新运行这一步，结果有限。",
    ),
    cures=Text(
        "Use bfloat16, which has the range of float32, or compute this op in float32 and cast the result "
        "back: norms, softmax, losses and long sums. Scale before the product instead of after it (q / "
        "sqrt(d) before q @ k). For gradients of a scaled loss let GradScaler find the scale.",
        "改用 bfloat16（范围与 float32 相同），或只在这一步用 float32 计算再转回：归一化、softmax、损失、"
        "很长的求和。先缩放再相乘（在 q @ k 之前就除以 sqrt(d)）。对缩放过的损失，让 GradScaler 自己寻找缩"
        "放因子。",
    ),
    examples=("fwd_half_rmsnorm_overflow", "infer_half_linear_overflow", "fwd_half_norm_silent_zero"),
)

WHY = Text(
    "{op} made {dtype}, which ends at {largest:g}, out of {operand} = {value:.5g}; in float32 the same op "
    "on the same operands is finite.",
    "{op} 的结果为 {dtype}，最大只能表示 {largest:g}，而 {operand} = {value:.5g}；同样的运算用 float32 结"
    "果有限。",
)
STEP = Text("the step in float32: {outcome}", "用 float32 运行这一步：{outcome}")
WITHOUT_AUTOCAST = Text("the step without autocast: {outcome}", "关闭 autocast 运行这一步：{outcome}")
SILENT = Text(
    "a later op turned the infinity into zeros: the output is wrong without any NaN",
    "后面的运算把无穷变成了 0：输出有误，却没有任何 NaN",
)
TOO_LARGE = Text(
    "the same op on the same operands overflows in float32 too", "同样的运算和运算数用 float32 也会溢出"
)
MASK = Text("the value is a mask's constant, {value:g}", "该值是掩码常数 {value:g}")
STILL = Text("the step fails in float32 too", "用 float32 运行这一步也失败")
NOT_AGAIN = Text("the same step does not overflow again", "重新运行这一步，不再溢出")


def weigh(case: Case) -> Claim | Against | None:
    birth = _overflowed(case)
    if birth is None or not birth.narrow:
        return None
    if birth.finite_in_float32 is False:
        return Against(TOO_LARGE.say())
    mask = mask_constant(case)
    if mask is not None:
        return Against(MASK.say(value=mask.value))
    if case.located.by == "live trace" and case.trouble.seen_in != "trace" and case.outcome("repeat").finite:
        return Against(NOT_AGAIN.say())
    outcome, evidence = in_full_precision(case)
    if case.trouble.seen_in == "trace":
        evidence = (SILENT.say(), *evidence)
    why = _why(birth)
    if outcome.finite is True:
        open_question = _scaled(case) or (jumped(case) and case.outcome("lower-rate").finite is True)
        return Claim("likely" if open_question else "proved", why, evidence, 2.0)
    if outcome.finite is False:
        return Claim("possible", why, evidence, 2.0)
    return Claim("likely", why, evidence, 2.0)


def _overflowed(case: Case) -> BirthOp | None:
    """The op that left the range: the birth op, the one whose derivative that is, or the one that prepared
    the data that it was given."""
    if case.birth is None or case.mechanism.kind == OVERFLOW:
        return case.birth
    before = before_it_was_bounded(case)
    if before is not None and mechanism_of(before).kind == OVERFLOW:
        return before
    return overflow_in_data(case)


def in_full_precision(case: Case) -> tuple[Outcome, tuple[str, ...]]:
    """The step without autocast where that was on, and if that does not help, widened altogether."""
    evidence: tuple[str, ...] = ()
    outcome = case.outcome("autocast-off")
    if outcome.finite is not None:
        evidence = (WITHOUT_AUTOCAST.say(outcome=outcome.text),)
    if not outcome.finite:
        wide = case.outcome("float32")
        if wide.finite is not None:
            return wide, (*evidence, STEP.say(outcome=wide.text))
    return outcome, evidence


def _scaled(case: Case) -> bool:
    """A gradient that overflowed under a GradScaler's scale: whether that was used as it should is for
    another cause to say."""
    return case.phase == "backward" and ("scale" in case.events or "unscale" in case.events)


def _why(birth: BirthOp) -> str:
    mechanism = mechanism_of(birth)
    dtype = birth.dtype or torch.float16
    return WHY.say(
        op=birth.name,
        dtype=dtype_name(dtype),
        largest=torch.finfo(dtype).max,
        operand=mechanism.operand or "?",
        value=float("nan") if mechanism.value is None else mechanism.value,
    )


def remedies(case: Case) -> list[Remedy]:
    if case.trouble.seen_in == "checkpoint":
        return offer(case, "bfloat16-cast")
    if case.phase == "backward":
        return offer(case, "use-grad-scaler", "bfloat16", "full-precision")
    return offer(case, "upcast-op", "bfloat16-cast", "bfloat16", "full-precision")
