"""A value left the range of float32 (or float64): exp, a product, a power, a sum."""

from __future__ import annotations

import torch

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.derivative import before_it_was_bounded
from nanwatch.explain.history import passes_of, rise_of
from nanwatch.explain.masks import mask_constant
from nanwatch.explain.mechanism import OVERFLOW, Mechanism, mechanism_of
from nanwatch.explain.remedies import offer
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.watching.tape import tensors_in

PAGE = Page(
    title=Text("A value left the range of float32", "数值超出了 float32 的范围"),
    meaning=Text(
        "An op was given finite numbers, and its true result is larger than the dtype can hold: exp of 89 "
        "or more, the square of 1e20, a product or a sum of large values. The result is Inf, and a few ops "
        "later NaN (inf - inf, inf / inf, 0 * inf). The op did what it should; the question is why its "
        "operand was so large.",
        "运算得到的都是有限的数，但真正的结果超过了该类型能表示的最大值：对 89 以上的数取 exp，对 1e20 取"
        "平方，或很大的数相乘、相加。结果变成 Inf，再过几步运算（inf - inf、inf / inf、0 * inf）就成了 NaN。"
        "运算本身没有错，要问的是它的输入为什么这么大。",
    ),
    proof=Text(
        "The operand's value, and the step run again with that operand bounded: if loss and gradients are "
        "then finite, this overflow alone was behind them.",
        "证据是该运算数的值，以及限制它的大小后重新运行这一步：如果损失和梯度都有限，就说明问题只在这次溢"
        "出。",
    ),
    cures=Text(
        "Use the form that does not leave the range: log_softmax instead of log(softmax), logsumexp "
        "instead of log(sum(exp)), softplus instead of log(1 + exp), expm1, sums of logarithms instead of "
        "products. Bound what goes into exp (a clamp on a log-variance or a log-rate). If the operand grew "
        "over the steps, lower the learning rate or clip gradients; if one batch brought it, scale the "
        "inputs.",
        "改用不会溢出的写法：用 log_softmax 代替 log(softmax)，用 logsumexp 代替 log(sum(exp))，用 "
        "softplus 代替 log(1 + exp)，用 expm1，用对数之和代替连乘。限制送进 exp 的值（对 log 方差或 log 速"
        "率做 clamp）。如果该值是逐步增大的，降低学习率或裁剪梯度；如果是某个批次带来的，对输入做缩放。",
    ),
    examples=("fwd_vae_exp_overflow", "loss_contrastive_exp", "fwd_cumprod_overflow"),
)

WHY = Text(
    "{op} was given {operand} = {value:.4g}; the result is beyond {dtype}, whose largest value is "
    "{largest:.3g}.",
    "{op} 的 {operand} 为 {value:.4g}；结果超出 {dtype} 的范围，其最大值为 {largest:.3g}。",
)
PLACES = Text(
    "{count} of {total} values of the output are infinite", "输出的 {total} 个值中有 {count} 个非有限"
)
IN_FLOAT64 = Text("the same op in float64 is finite", "同一运算用 float64 结果有限")
NARROW = Text(
    "in float32 the same op on the same operands is finite: the range of {dtype} is what was too small",
    "同样的运算和运算数用 float32 结果有限：范围太小的是 {dtype}",
)
MASK = Text("the value is a mask's constant, {value:g}", "该值是掩码常数 {value:g}")
NOT_AGAIN = Text(
    "the same step on the same state does not overflow again", "在同样的状态上重新运行，不再溢出"
)
BOUNDED_LATER = Text(
    "the loss does not show the infinity, since a later op bounds it; the derivative of {op} does: zero "
    "times infinity",
    "后面的运算限制了这个无穷，损失中看不到它；但 {op} 的导数会遇到它：零乘以无穷",
)
BOUNDED = Text("the step with that operand bounded: {outcome}", "限制该运算数后重新运行：{outcome}")
HUGE = 1e6
"""No training leaves a weight like that, no preprocessing a batch: something else has."""


def weigh(case: Case) -> Claim | Against | None:
    birth = case.birth
    if birth is None or birth.given_no_number is not None:
        return None
    if case.mechanism.kind != OVERFLOW:
        return _before_it_was_bounded(case)
    if birth.narrow and birth.finite_in_float32:
        return Against(NARROW.say(dtype=dtype_name(birth.dtype)))
    mask = mask_constant(case)
    if mask is not None:
        return Against(MASK.say(value=mask.value))
    evidence = _evidence(case)
    if case.phase not in ("forward", "loss", "backward"):
        return Claim("likely", _why(case), evidence, 1.0)
    if case.located.by == "live trace" and case.outcome("repeat").finite:
        return Against(NOT_AGAIN.say())
    bounded = case.outcome("operand-bounded")
    if bounded.text:
        evidence = (*evidence, BOUNDED.say(outcome=bounded.text))
    sure = bounded.finite is True and case.phase != "backward" and not _something_else(case)
    return Claim("proved" if sure else "likely", _why(case), evidence, 1.0)


def _before_it_was_bounded(case: Case) -> Claim | Against | None:
    """An op of the forward pass overflowed, another one made a number of that, and the derivative meets both:
    tanh(log(1 + exp(x)))."""
    op = before_it_was_bounded(case)
    mechanism = None if op is None else mechanism_of(op)
    if op is None or mechanism is None or mechanism.kind != OVERFLOW:
        return None
    if op.narrow and op.finite_in_float32:
        return Against(NARROW.say(dtype=dtype_name(op.dtype)))
    return Claim("likely", _said(op, mechanism), (BOUNDED_LATER.say(op=op.name),), 1.0)


def _why(case: Case) -> str:
    assert case.birth is not None
    return _said(case.birth, case.mechanism)


def _said(birth: BirthOp, mechanism: Mechanism) -> str:
    dtype = birth.dtype or torch.float32
    return WHY.say(
        op=birth.name,
        operand=mechanism.operand or "?",
        value=float("nan") if mechanism.value is None else mechanism.value,
        dtype=dtype_name(dtype),
        largest=torch.finfo(dtype).max if dtype.is_floating_point else float("nan"),
    )


def _evidence(case: Case) -> tuple[str, ...]:
    birth = case.birth
    assert birth is not None
    found = []
    if birth.bad is not None:
        found.append(PLACES.say(count=int(birth.bad.sum()), total=birth.bad.numel()))
    if birth.wide:
        found.append(IN_FLOAT64.say())
    return tuple(found)


def _something_else(case: Case) -> bool:
    """Whether there is a sign that the operand is only a symptom: values that rose over the steps or from
    layer to layer, or a weight or an input that is out of all proportion."""
    rise = rise_of(case.history)
    if rise is not None and (rise.clear or rise.sudden):
        return True
    passes = passes_of(case)
    if passes is not None and passes.far:
        return True
    weights = [t for m in case.models for t in (*m.parameters(), *m.buffers())]
    given = [t for e in case.model_calls for t in tensors_in((e.args, e.kwargs))]
    return any(_largest(t) > HUGE for t in (*weights, *given) if t.is_floating_point())


def _largest(tensor: torch.Tensor) -> float:
    """Of its finite values; masks are kept in buffers, with the least value of the dtype, on purpose."""
    if not tensor.numel() or tensor.device.type == "meta" or tensor.layout is not torch.strided:
        return 0.0
    values = tensor.detach().abs()
    values = values[torch.isfinite(values) & (values < torch.finfo(tensor.dtype).max)]
    return float(values.max()) if values.numel() else 0.0


def dtype_name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def remedies(case: Case) -> list[Remedy]:
    ids = ["bounded-exp", "log-softmax"] if "exp" in (case.birth.name if case.birth else "") else []
    made_in_training = (
        ("lower-learning-rate", "clip-gradients", "skip-batch") if case.phase != "weights" else ()
    )
    return offer(case, *ids, "clamp-scores", *made_in_training)
