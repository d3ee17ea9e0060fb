"""An eps, a scale or a denominator became zero in half precision, that float32 would have held."""

from __future__ import annotations

from typing import Any

import torch

from nanwatch.explain.birth import NARROW, BirthOp
from nanwatch.explain.case import Case
from nanwatch.explain.causes.half_overflow import in_full_precision
from nanwatch.explain.causes.overflow import dtype_name
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.experiments.float32 import uses_narrow
from nanwatch.explain.lineage import Lineage, Node
from nanwatch.explain.mechanism import DIVIDE_BY_ZERO, LOG_OF_ZERO
from nanwatch.explain.provenance import COUNT, MARKS, nature
from nanwatch.explain.remedies import offer
from nanwatch.explain.rounded_constants import rounded_constants
from nanwatch.explain.state import optimizer_of
from nanwatch.explain.text import Text
from nanwatch.records import Remedy

PAGE = Page(
    title=Text("A small number became zero in half precision", "很小的数在半精度中变成了 0"),
    meaning=Text(
        "The smallest number that float16 can hold is 6e-8: an eps of 1e-8 or 1e-12 is 0, the square of "
        "1e-4 is 0. bfloat16 has the range of float32 but only 8 bits: 1 - 1e-6 is 1 there, and 1 - p is "
        "0. Then the guard that stands in the code guards nothing, and a division, a logarithm or a root "
        "gets the zero it was to keep away.",
        "float16 能表示的最小的数是 6e-8：1e-8 或 1e-12 的 eps 就是 0，1e-4 的平方也是 0。bfloat16 的范围"
        "与 float32 相同，但只有 8 位精度：1 - 1e-6 在其中就是 1，于是 1 - p 成了 0。这样，代码里写的保护"
        "形同虚设，除法、对数或开方照样得到了 0。",
    ),
    proof=Text(
        "The operand is 0, and the same step in float32 (or the same op with an eps that the dtype can "
        "hold) runs finite: so it was not zero in truth.",
        "该运算数为 0，而用 float32 运行这一步（或在同一运算中换成该类型能表示的 eps）结果有限：说明它本来"
        "不是 0。",
    ),
    cures=Text(
        "Compute norms, variances, ratios and logarithms in float32 and cast the result back. Where it "
        "must be half, use an eps that the dtype can hold (1e-4 in float16). Keep optimizer state and "
        "master weights in float32, or raise Adam's eps to 1e-4 for float16 weights. Use log_sigmoid or "
        "log1p(-p) instead of log(1 - p).",
        "范数、方差、比值、对数用 float32 计算再转回。必须用半精度时，用该类型能表示的 eps（float16 用 "
        "1e-4）。优化器状态和主权重保持 float32；若权重是 float16，把 Adam 的 eps 提高到 1e-4。用 "
        "logsigmoid 或 log1p(-p) 代替 log(1 - p)。",
    ),
    examples=("fwd_half_normalize_zero", "opt_adam_half_eps", "loss_half_signal_ratio"),
)

WHY = Text(
    "{op} was given {operand} = 0 in {dtype} at {count} places; in float32 it is not zero.",
    "{op} 的 {operand} 在 {dtype} 中有 {count} 处为 0；用 float32 则不为 0。",
)
WHY_ROUNDED = Text(
    "{op} was given {operand} = 0 in {dtype} at {count} places, and a number it is made of was rounded.",
    "{op} 的 {operand} 在 {dtype} 中有 {count} 处为 0，而构成它的一个数被舍入过。",
)
WHY_UPDATE = Text(
    "The optimizer's eps = {eps:g} is 0 in {dtype} (smallest value {least:.2g}); so {op} divides by "
    "{operand} = 0 at {count} places.",
    "优化器的 eps = {eps:g} 在 {dtype} 中为 0（最小可表示 {least:.2g}），因此 {op} 在 {count} 处除以 "
    "{operand} = 0。",
)
EPS_LOST = Text(
    "the constant {eps:g} in {op} is {held:g} in {dtype}", "{op} 中的常数 {eps:g} 在 {dtype} 中为 {held:g}"
)
SAME_OP = Text("the same op with that eps in float32 is finite", "同一运算用 float32 并加上该 eps，结果有限")
ZERO_IN_FLOAT32 = Text("the operand is zero in float32 too", "该运算数用 float32 也是 0")
GUARDS = ("add", "clamp", "clamp_min", "maximum", "sub", "rsub")
FAR = 12


def weigh(case: Case) -> Claim | Against | None:
    birth = case.birth
    if birth is None or case.mechanism.kind not in (DIVIDE_BY_ZERO, LOG_OF_ZERO) or case.mechanism.value != 0:
        return None
    if case.phase == "optimizer":
        return _update(case, birth)
    if case.phase == "weights" or not uses_narrow(case):
        return None
    outcome, evidence = in_full_precision(case)
    lost = _lost_guard(case, birth)
    evidence = (*evidence, lost) if lost else evidence
    operand = case.mechanism.operand
    facts = {"op": birth.name, "operand": operand, "dtype": _dtype(case, birth), "count": _count(case, birth)}
    why = WHY.say(**facts)
    if outcome.finite is True:
        sure = case.phase != "data" and not _is_count(case, birth)
        return Claim("proved" if sure else "possible", why, evidence, 2.0)
    if outcome.finite is False:
        rounded = rounded_constants(case, birth, operand)
        if not rounded:
            return Against(ZERO_IN_FLOAT32.say())
        return Claim("likely", WHY_ROUNDED.say(**facts), rounded, 2.0)
    return Claim("likely" if lost else "possible", why, evidence, 2.0)


def _update(case: Case, birth: BirthOp) -> Claim | Against | None:
    """The update divides by a root plus eps, and the eps is zero in the dtype of the weights."""
    divisor = birth.tensor(case.mechanism.operand)
    if divisor is None or divisor.dtype not in NARROW:
        return None
    lost = [eps for eps in _epsilons(case) if eps > 0 and float(torch.tensor(eps).to(divisor.dtype)) == 0]
    if not lost:
        return None
    why = WHY_UPDATE.say(
        eps=lost[0],
        dtype=dtype_name(divisor.dtype),
        least=torch.finfo(divisor.dtype).smallest_normal * torch.finfo(divisor.dtype).eps,
        op=birth.name,
        operand=case.mechanism.operand,
        count=_count(case, birth),
    )
    finite = _finite_with(birth, case.mechanism.operand, lost[0])
    return Claim("proved" if finite else "likely", why, (SAME_OP.say(),) if finite else (), 2.0)


def _epsilons(case: Case) -> list[float]:
    optimizer = optimizer_of(case)
    groups: list[dict[str, Any]] = [] if optimizer is None else optimizer.param_groups
    return [float(g["eps"]) for g in groups if isinstance(g.get("eps"), (int, float))]


def _finite_with(birth: BirthOp, operand: str, eps: float) -> bool:
    """The op in float32, its divisor as far from zero as the eps was meant to keep it."""

    def change(name: str, tensor: torch.Tensor) -> torch.Tensor:
        wide = tensor.float() if tensor.dtype in NARROW else tensor
        return wide + eps if name.split("[")[0] == operand else wide

    made = birth.again(change, torch.float32)
    return bool(made) and all(bool(torch.isfinite(t).all()) for t in made or ())


def _is_count(case: Case, birth: BirthOp) -> bool:
    """A number of marked places is not rounded to zero: nothing was marked."""
    if case.mechanism.kind != DIVIDE_BY_ZERO:
        return False
    node = case.lineage.node_of(birth.op)
    return node is not None and nature(case.lineage, node, case.mechanism.operand) in (COUNT, MARKS)


def _lost_guard(case: Case, birth: BirthOp) -> str | None:
    """A small constant that was to keep the operand from zero, and is nothing in the dtype."""
    lineage = case.lineage
    node = lineage.node_of(birth.op)
    maker = None if node is None else lineage.maker(node, case.mechanism.operand)
    if maker is None:
        return None
    for each in (maker, *lineage.upstream(maker, FAR)):
        found = _lost_in(lineage, each)
        if found is not None:
            return found
    return None


def _lost_in(lineage: Lineage, node: Node) -> str | None:
    dtype = getattr(torch, node.outputs[0].dtype, None) if node.outputs else None
    if node.base not in GUARDS or dtype not in NARROW:
        return None
    for value in node.arguments.values():
        if not isinstance(value, float) or not 0 < abs(value) <= 1:
            continue
        held = float(torch.tensor(value, dtype=torch.float64).to(dtype))
        if (held == 0) or (held == 1 and value != 1):
            return EPS_LOST.say(eps=value, op=node.base, held=held, dtype=dtype_name(dtype))
    return None


def _count(case: Case, birth: BirthOp) -> int:
    return 0 if birth.bad is None else round(float(birth.bad.sum()) * case.mechanism.share)


def _dtype(case: Case, birth: BirthOp) -> str:
    operand = birth.tensor(case.mechanism.operand)
    return dtype_name(birth.dtype if operand is None else operand.dtype)


def remedies(case: Case) -> list[Remedy]:
    if case.phase == "optimizer":
        return offer(case, "larger-eps", "full-precision")
    return offer(case, "upcast-op", "larger-eps", "clamp-divisor", "clamp-log", "full-precision")
