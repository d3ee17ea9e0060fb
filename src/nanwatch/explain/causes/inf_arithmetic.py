"""0 * inf, inf - inf, inf / inf, with an infinity that was there on purpose."""

from __future__ import annotations

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.infinities import Origin, masked_row, origins, origins_of_birth
from nanwatch.explain.masks import mask_constant
from nanwatch.explain.mechanism import INF_ARITHMETIC, UNKNOWN, Mechanism, mechanism_of
from nanwatch.explain.remedies import offer
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.watching.stack import user_frame

PAGE = Page(
    title=Text("Arithmetic with an infinity that was there on purpose", "与有意放入的无穷做运算"),
    meaning=Text(
        "An infinity was written down on purpose: a score of -inf for what is forbidden, a distance of inf "
        "for what is not there. Comparing, taking the maximum or the exponential of it is fine. But 0 * "
        "inf, inf - inf and inf / inf have no value: multiplying by a mask of zeros does not remove an "
        "infinity, it makes NaN.",
        "程序有意写入了无穷：被禁止的位置得分为 -inf，不存在的距离为 inf。对它做比较、取最大值或取指数都没"
        "有问题。但 0 * inf、inf - inf、inf / inf 没有值：乘以 0 的掩码并不能去掉无穷，只会得到 NaN。",
    ),
    proof=Text(
        "Both operands at the place of the NaN, and where the infinity came from: a constant in the "
        "program, or a mask.",
        "NaN 所在位置的两个运算数，以及无穷的来源：程序中的常数，或一个掩码。",
    ),
    cures=Text(
        "Choose with where or masked_fill instead of multiplying: torch.where(keep, x, 0.0). Drop the "
        "infinite entries before the arithmetic, or use a large finite number. In a cross entropy with "
        "soft targets give masked classes a finite score.",
        "用 where 或 masked_fill 选择，不要相乘：torch.where(keep, x, 0.0)。在运算之前去掉无穷的条目，或改"
        "用很大的有限数。在软标签的交叉熵中，给被遮住的类别一个有限的分数。",
    ),
    examples=("fwd_zero_times_inf", "loss_smoothed_labels", "fwd_sdpa_wrong_sign_mask"),
)

WHY = Text(
    "{op} makes NaN of {pair}: {first} meets {second}.", "{op} 由 {pair} 得到 NaN：{first} 遇上 {second}。"
)
WHY_INSIDE = Text("{op} makes NaN of an infinity in {operand}.", "{op} 由 {operand} 中的无穷得到 NaN。")
FROM_CONSTANT = Text("the infinity was written down by the program{place}", "该无穷是程序自己写入的{place}")
FROM_MASK = Text("the infinity belongs to a mask", "该无穷属于一个掩码")
FROM_DATA = Text("the infinity came in with the data", "该无穷来自输入数据")
COMPUTED = Text("the infinity was computed, not written down", "该无穷是计算得到的，不是程序写入的")
AT_LINE = Text(" (line {line}: {code})", "（第 {line} 行：{code}）")


ASKED = Text(
    "the program had asked whether it is infinite, and multiplies it by 0 to take it out",
    "程序先判断过它是否为无穷，再用乘以 0 的办法去掉它",
)


def weigh(case: Case) -> Claim | Against | None:
    found = _nan_out_of_infinity(case)
    if found is None:
        return None
    birth, mechanism, known = found
    if masked_row(case) is not None or mask_constant(case) is not None:
        return Claim("possible", _why(birth, mechanism), (), 1.0)
    if birth.op.asked_about:
        return Claim("proved", _why(birth, mechanism), (ASKED.say(),), 1.0)
    if any(o.kind == "born" for o in known):
        return Against(COMPUTED.say())
    evidence = tuple(dict.fromkeys(_said(origin) for origin in known))
    why = _why(birth, mechanism)
    if not known or not all(o.on_purpose for o in known):
        return Claim("possible", why, evidence, 1.0)
    again = case.located.by != "live trace" or not case.outcome("repeat").finite
    sure = again and case.phase in ("forward", "loss", "data") and _meets(birth, mechanism) is not None
    return Claim("proved" if sure else "likely", why, evidence, 1.0)


def _nan_out_of_infinity(case: Case) -> tuple[BirthOp, Mechanism, list[Origin]] | None:
    """The op that makes NaN of an infinity, and where that infinity came from. Where the birth is said to be
    the data that brought it in, the op is found in the lineage."""
    if case.birth is not None:
        if case.mechanism.kind != INF_ARITHMETIC:
            return None
        return case.birth, case.mechanism, origins_of_birth(case)
    if case.phase != "data" or not any(n.posinf or n.neginf for n in case.located.birth.outputs):
        return None
    for op in case.lineage.ops.values():
        if op.turns_inf_into_nan and op.makes_nan:
            birth = BirthOp(op)
            mechanism = mechanism_of(birth)
            if mechanism.kind in (INF_ARITHMETIC, UNKNOWN):
                return birth, mechanism, origins(case, case.lineage.ops, op)
            return None
    return None


def _meets(birth: BirthOp, mechanism: Mechanism) -> tuple[str, float, str, float] | None:
    """(operand, value, other operand, value) at the first NaN. Of an op that works on whole rows, the same
    operand twice."""
    names = [n for n in birth.arguments if birth.at_bad(n) is not None][:2]
    if len(names) == 2 and birth.name in ("mul", "sub", "add", "div", "addcmul", "xlogy", "addcdiv", "rsub"):
        first, second = (_at_nan(birth, n) for n in names)
        if first is not None and second is not None:
            return names[0], first, names[1], second
    value = mechanism.value if mechanism.value is not None else float("inf")
    return (mechanism.operand, value, mechanism.operand, value) if mechanism.operand else None


def _at_nan(birth: BirthOp, name: str) -> float | None:
    """The operand at the first NaN of the output."""
    values = birth.at_bad(name)
    if values is None or birth.output is None or birth.bad is None:
        return None
    nan = birth.output[birth.bad].isnan()
    return float(values[nan][0]) if bool(nan.any()) else None


def _why(birth: BirthOp, mechanism: Mechanism) -> str:
    pair = _meets(birth, mechanism)
    if pair is None or pair[0] == pair[2]:
        return WHY_INSIDE.say(op=birth.name, operand=mechanism.operand or "?")
    return WHY.say(
        op=birth.name,
        pair=f"{pair[0]}, {pair[2]}",
        first=f"{pair[0]} = {pair[1]:g}",
        second=f"{pair[2]} = {pair[3]:g}",
    )


def _said(origin: Origin) -> str:
    if origin.kind == "outside":
        return FROM_DATA.say()
    if origin.kind == "mask":
        return FROM_MASK.say()
    frame = user_frame(origin.op.stack) if origin.op is not None else None
    place = "" if frame is None else AT_LINE.say(line=frame.line, code=frame.code)
    return FROM_CONSTANT.say(place=place)


def remedies(case: Case) -> list[Remedy]:
    target = ("keep-target",) if case.phase == "loss" else ()
    masks = ("double-where", "where-not-product", "finite-mask", *target, "safe-masked-softmax")
    return offer(case, *masks, "skip-batch")
