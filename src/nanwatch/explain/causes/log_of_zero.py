"""The logarithm of zero, or of a probability that has become zero."""

from __future__ import annotations

from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.doubts import certainty, changed_since, doubts
from nanwatch.explain.mechanism import DETERMINANTS, INF_ARITHMETIC, INHERITED, LOG_OF_ZERO, LOGS
from nanwatch.explain.provenance import Seen, is_derivative, made_by, seen
from nanwatch.explain.remedies import offer
from nanwatch.explain.text import Text
from nanwatch.records import Remedy

PAGE = Page(
    title=Text("Logarithm of zero", "对零取对数"),
    meaning=Text(
        "log(0) is -inf. Mostly the zero was a probability: softmax and sigmoid round to exactly 0 or 1 as "
        "soon as the scores are some 90 apart (float32), and log(p) or log(1 - p) then leaves the real "
        "numbers. A count, a determinant or a sum behind a ReLU can be zero as well.",
        "log(0) 等于 -inf。这个零多半是概率：只要分数相差约 90（float32），softmax 和 sigmoid 就会舍入成恰好"
        "的 0 或 1，于是 log(p) 或 log(1 - p) 就不再是实数。计数、行列式、ReLU 之后的和也可能为零。",
    ),
    proof=Text(
        "The operand of the logarithm is 0 where its result is bad.", "结果异常处，对数的操作数为 0。"
    ),
    cures=Text(
        "Do not take the log of a probability: log_softmax, logsigmoid, binary_cross_entropy_with_logits and "
        "logsumexp compute the same from the scores and never meet the zero. Otherwise clamp the operand, "
        "log(x.clamp(min=eps)), or use xlogy for p * log(p).",
        "不要对概率取对数：log_softmax、logsigmoid、binary_cross_entropy_with_logits 和 logsumexp 直接由分数"
        "算出同样的结果，永远不会遇到零。否则就截断操作数 log(x.clamp(min=eps))，或用 xlogy 计算 p * "
        "log(p)。",
    ),
    examples=("loss_log_softmax_underflow", "loss_gan_saturated", "fwd_log_of_relu", "fwd_expand_log1p"),
)
WHY = Text(
    "{op} was given {value:g} at {places} of {count} places: its logarithm is infinite.",
    "{op} 在 {count} 处中有 {places} 处的操作数为 {value:g}，其对数为无穷。",
)
UNDERFLOWED = Text(
    "the zero is a probability made by {maker} that was rounded", "这个零是 {maker} 算出的、被舍入的概率"
)
MADE = Text("the operand was made by {maker}", "操作数由 {maker} 得到")
SINGULAR = Text(
    "{op} was given {places} of {count} matrices that are singular: their determinant is {value:g}, its "
    "logarithm infinite.",
    "{op} 得到的 {count} 个矩阵中有 {places} 个是奇异的：行列式为 {value:g}，其对数为无穷。",
)
LATER = Text(
    "{op} met the logarithm ({log}) of a probability that {maker} had rounded to 0.",
    "{op} 遇到了被 {maker} 舍入为 0 的概率的对数（{log}）。",
)
DOUBT = Text("open: {what}", "存疑：{what}")
ROUNDS = ("_softmax", "softmax", "sigmoid", "exp", "hardsigmoid", "special_expit")


def weigh(case: Case) -> Claim | Against | None:
    if case.birth is None:
        return None
    if case.birth.name not in (*LOGS, *DETERMINANTS):
        return None if case.phase == "backward" else _met_later(case)
    found = seen(case)
    if found is None or found.mechanism.kind != LOG_OF_ZERO or is_derivative(case, found):
        return None
    operand = found.mechanism.operand
    bad = found.birth.bad
    places = 0 if bad is None else round(float(bad.sum()) * found.mechanism.share)
    said = SINGULAR if found.birth.name in DETERMINANTS else WHY
    why = said.say(
        op=found.birth.name,
        value=found.mechanism.value or 0.0,
        places=places,
        count=0 if bad is None else bad.numel(),
    )
    open_questions = doubts(case, found, operand)
    evidence = _evidence(found, operand) + [DOUBT.say(what=d) for d in open_questions]
    return Claim(certainty(case, found, open_questions), why, tuple(evidence), 1.0)


def _met_later(case: Case) -> Claim | None:
    """The op met an infinity that a logarithm made of a rounded probability, as in 0 * log(0)."""
    if case.mechanism.kind not in (INF_ARITHMETIC, INHERITED):
        return None
    found = seen(case)
    if found is None or found.node is None:
        return None
    for name, measured in found.node.given.items():
        if not measured.neginf:
            continue
        maker = next((m for m in made_by(found.lineage, found.node, name) if m.base in LOGS), None)
        zeros = {} if maker is None else {n: g for n, g in maker.given.items() if g.min == 0}
        if maker is None or not zeros:
            continue
        rounded = _rounded(Seen(found.birth, maker, found.lineage), next(iter(zeros)))
        if rounded is not None:
            why = LATER.say(op=found.birth.name, log=maker.base, maker=rounded)
            return Claim("proved" if not changed_since(case) else "likely", why, (), 2.0)
    return None


def _rounded(found: Seen, operand: str) -> str | None:
    """The op that rounded a probability to 0 or 1, if one made the operand."""
    assert found.node is not None
    maker = found.lineage.maker(found.node, operand)
    if maker is None or "det" in maker.base:
        return None  # what a determinant is made of are no probabilities
    for each in (maker, *found.lineage.upstream(maker, 3)):
        if each.base in ROUNDS:
            return each.base.lstrip("_")
    return None


def _evidence(found: Seen, operand: str) -> list[str]:
    if found.node is None:
        return []
    rounded = _rounded(found, operand)
    if rounded is not None:
        return [UNDERFLOWED.say(maker=rounded)]
    return [MADE.say(maker=m.base) for m in made_by(found.lineage, found.node, operand)][:1]


def remedies(case: Case) -> list[Remedy]:
    return offer(case, "log-softmax", "clamp-log", "label-smoothing", "drop-bad-rows", "clean-data")
