"""The loss has no finite value for this target: a target that is masked out, a sequence that is too long,
a value outside of the support of the distribution."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.doubts import changed_since, happens_again
from nanwatch.explain.lineage import Node
from nanwatch.explain.mechanism import DIVIDE_BY_ZERO, INVALID_DOMAIN, LOG_OF_ZERO
from nanwatch.explain.provenance import HANDS_ON, MARKS, SUMS, Seen, made_by, nature, only_data, seen
from nanwatch.explain.remedies import offer
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.watching.stack import is_library

PAGE = Page(
    title=Text("A target the loss cannot reach", "损失无法达到的目标"),
    meaning=Text(
        "The model may be fine; the loss of this target is infinite whatever it says. The correct class was "
        "masked to -inf, the transcript is longer than the audio has frames (CTC needs one more for every "
        "repeated letter), the observed value lies outside of the support of the distribution, or a soft "
        "target gives weight to a class that has none.",
        "模型可能没有问题：不论它给出什么，这个目标的损失都是无穷。正确类别被掩码成了 -inf；转写文本比音频帧"
        "数还长（CTC 中每个重复字母还需多一帧）；观测值落在分布的支撑集之外；或软标签给了概率为零的类别权"
        "重。",
    ),
    proof=Text(
        "The target against the domain of the loss: its log-probability is -inf while others in the row are "
        "finite, its length against the input, its value against the support.",
        "将目标与损失的定义域对照：目标的对数概率为 -inf，而同一行的其他类别有限；目标长度与输入长度；目标值"
        "与支撑集。",
    ),
    cures=Text(
        "Find out which is wrong, the target or the mask. Never mask the target itself; drop or repair the "
        "samples whose target cannot be reached; for CTC set zero_infinity=True or drop such pairs; move "
        "targets off the edge of the support (clamp to eps .. 1 - eps).",
        "先弄清错的是目标还是掩码。不要把目标本身掩掉；删除或修正无法达到的样本；对 CTC 设置 "
        "zero_infinity=True 或丢弃这类样本；把目标从支撑集边界移开（截断到 eps .. 1 - eps）。",
    ),
    examples=("loss_parser_transitions", "loss_ctc_too_long", "loss_ratings_beta", "loss_arrival_windows"),
)
MASKED = Text(
    "{places} of {count} targets point at a class whose log-probability is -inf, while other classes of the "
    "row are finite.",
    "{count} 个目标中有 {places} 个指向对数概率为 -inf 的类别，而同一行的其他类别是有限的。",
)
PICKED = Text(
    "{op} picks {places} value(s) that were set to -inf on purpose.",
    "{op} 取出了 {places} 个被有意设为 -inf 的值。",
)
TOO_LONG = Text(
    "Sample {row} needs {needed} frames for its {length} labels, repeats included, and has {frames}.",
    "样本 {row} 的 {length} 个标签（含重复）需要 {needed} 帧，而只有 {frames} 帧。",
)
SOFT = Text(
    "The target gives weight to {places} class(es) whose log-probability is -inf.",
    "目标给 {places} 个对数概率为 -inf 的类别分配了权重。",
)
SUMMED = Text(
    "{op} takes the log-probability of every class, and {places} of them are masked to -inf.",
    "{op} 计入了每个类别的对数概率，而其中 {places} 个被掩码为 -inf。",
)
OUTSIDE = Text(
    "{places} of {count} targets lie outside of, or on the edge of, the support of {distribution}: {op} of "
    "{value:g}.",
    "{count} 个目标中有 {places} 个落在 {distribution} 的支撑集之外或边界上：{op}({value:g})。",
)
INDICATOR = Text(
    "{op} is taken of a condition that is false at {places} of {count} places: the target lies outside of "
    "its bounds.",
    "{op} 的操作数是一个条件，{count} 处中有 {places} 处不成立：目标落在界限之外。",
)
FROM_DATA = Text("the operand is computed from the target alone", "操作数只由目标算出")
WRONG_INDEX = Text(
    "the index that picked it is negative: it points at the wrong place", "取值的索引为负：指向了错误的位置"
)
LOSSES = ("nll_loss_forward", "nll_loss2d_forward")
PICKS = ("gather", "index", "take", "take_along_dim", "index_select")


def weigh(case: Case) -> Claim | Against | None:
    if case.birth is None or case.phase == "backward":
        return None
    found = seen(case)
    if found is None:
        return None
    claim = (
        _masked_target(found.birth)
        or _too_long(found.birth)
        or _picked(case, found)
        or _soft_target(case, found)
        or _outside_of_support(case, found)
        or _at_zero(case, found)
    )
    shaky = not happens_again(case, found) or changed_since(case)
    if isinstance(claim, Claim) and claim.certainty == "proved" and shaky:
        return Claim("likely", claim.why, claim.evidence, claim.weight)
    return claim


def _masked_target(birth: BirthOp) -> Claim | None:
    scores, target = birth.tensor("self"), birth.tensor("target")
    if birth.name not in LOSSES or scores is None or target is None:
        return None
    classes = 1 if scores.dim() > 1 else 0
    ignored = birth.number("ignore_index")
    counts = torch.ones_like(target, dtype=torch.bool) if ignored is None else target != ignored
    inside = (target >= 0) & (target < scores.shape[classes])
    picked = scores.gather(classes, target.clamp(0, scores.shape[classes] - 1).unsqueeze(classes)).squeeze(
        classes
    )
    impossible = (picked == float("-inf")) & counts & inside & torch.isfinite(scores).any(dim=classes)
    if not bool(impossible.any()) or bool(torch.isnan(scores).any()):
        return None
    why = MASKED.say(places=int(impossible.sum()), count=int(counts.sum()))
    return Claim("proved", why, (), 2.0)


def _too_long(birth: BirthOp) -> Claim | None:
    """CTC: as many frames as labels, and one more between two that are alike."""
    targets = birth.tensor("targets")
    if "ctc_loss" not in birth.name or targets is None:
        return None
    frames, lengths = _plain(birth, "input_lengths"), _plain(birth, "target_lengths")
    begin = 0
    for row, length in enumerate(lengths):
        labels = targets[row, :length] if targets.dim() == 2 else targets[begin : begin + length]
        begin += length
        needed = length + int((labels[1:] == labels[:-1]).sum())
        if row < len(frames) and needed > frames[row]:
            why = TOO_LONG.say(row=row, needed=needed, length=length, frames=frames[row])
            return Claim("proved", why, (), 2.0)
    return None


def _plain(birth: BirthOp, name: str) -> list[int]:
    value = birth.arguments.get(name)
    if isinstance(value, torch.Tensor):
        return [int(v) for v in value.reshape(-1).tolist()]
    return [int(v) for v in value] if isinstance(value, (list, tuple)) else []


def _picked(case: Case, found: Seen) -> Claim | Against | None:
    """An index into log-probabilities that meets one which was masked."""
    birth = found.birth
    scores = birth.tensor("self")
    if birth.name not in PICKS or scores is None or birth.bad is None or birth.op.makes_nan:
        return None
    if not bool((scores == float("-inf")).any()) or case.phase == "data":
        return None
    given = birth.arguments.get("index", birth.arguments.get("indices"))
    indices = [
        t for t in (given if isinstance(given, (list, tuple)) else [given]) if isinstance(t, torch.Tensor)
    ]
    if any(t.dtype is not torch.bool and t.numel() and int(t.min()) < 0 for t in indices):
        return Against(WRONG_INDEX.say())
    why = PICKED.say(op=birth.name, places=int(birth.bad.sum()))
    return Claim("proved" if case.phase == "loss" else "likely", why, (), 2.0)


def _soft_target(case: Case, found: Seen) -> Claim | None:
    """Weights times log-probabilities, with a weight where the log-probability is -inf; or their plain
    sum."""
    if case.phase != "loss" or found.birth.op.makes_nan or found.node is None:
        return None
    if found.birth.name == "mul":
        return _weighted(case, found)
    given = found.node.given.get("self")
    if found.birth.name not in ("sum", "mean") or given is None or given.finite or given.nan:
        return None
    for maker in _bringing_infinities(found, found.node, "self"):
        if maker.base == "_log_softmax":
            return Claim(
                "proved", SUMMED.say(op=found.birth.name, places=given.neginf + given.posinf), (), 2.0
            )
        if maker.base == "mul" and maker.op is not None:
            return _weighted(case, Seen(BirthOp(found.lineage.ops[maker.op]), maker, found.lineage))
    return None


def _bringing_infinities(found: Seen, node: Node, name: str) -> Iterator[Node]:
    """The ops through which -inf came to an input, past sums and differences, the nearest first."""
    for _ in range(6):
        maker = found.lineage.maker(node, name)
        if maker is None or all(n.finite for n in maker.outputs):
            return
        yield maker
        if maker.base not in HANDS_ON and maker.base not in ("sub", "add", "neg", "sum"):
            return
        name = next((n for n, g in maker.given.items() if not g.finite), "self")
        node = maker


def _weighted(case: Case, found: Seen) -> Claim | None:
    birth = found.birth
    for name, other in (("self", "other"), ("other", "self")):
        scores, weights = birth.at_bad(name), birth.at_bad(other)
        if scores is None or weights is None or not bool((scores == float("-inf")).all()):
            continue
        if birth.bad is not None and bool((weights != 0).all()) and bool(torch.isfinite(weights).all()):
            certainty = "proved" if _is_data(case, found, other) else "likely"
            return Claim(certainty, SOFT.say(places=int(birth.bad.sum())), (), 2.0)
    return None


def _is_data(case: Case, found: Seen, name: str) -> bool:
    return found.node is not None and only_data(case, found.lineage, found.node, name)


def _outside_of_support(case: Case, found: Seen) -> Claim | None:
    """In a distribution's log_prob, at a pole that the observed value alone leads to."""
    if found.mechanism.kind not in (LOG_OF_ZERO, INVALID_DOMAIN, DIVIDE_BY_ZERO) or found.node is None:
        return None
    operand, birth = found.mechanism.operand, found.birth
    distribution = _distribution(birth)
    places = 0 if birth.bad is None else int(birth.bad.sum())
    numbers = {"op": birth.name, "places": places, "count": 0 if birth.bad is None else birth.bad.numel()}
    if distribution is not None and _is_data(case, found, operand):
        value = found.mechanism.value or 0.0
        why = OUTSIDE.say(distribution=distribution, value=value, **numbers)
        return Claim("proved", why, (FROM_DATA.say(),), 2.0)
    indicator = found.mechanism.kind == LOG_OF_ZERO and nature(found.lineage, found.node, operand) == MARKS
    if indicator and case.phase == "loss" and _is_condition(found, operand):
        certainty = "proved" if distribution is not None else "likely"
        return Claim(certainty, INDICATOR.say(**numbers), (), 2.0)
    return None


def _is_condition(found: Seen, operand: str) -> bool:
    """Whether the operand was computed from comparisons; not a mask from outside, nor a rounded
    probability."""
    assert found.node is not None
    maker = found.lineage.maker(found.node, operand)
    nearby = () if maker is None else (maker, *found.lineage.upstream(maker, 6))
    return any(n.dtype == "bool" for each in nearby for n in (*each.outputs, *each.given.values()))


def _distribution(birth: BirthOp) -> str | None:
    """The distribution of torch in whose log_prob the op ran."""
    for code, _ in birth.op.stack:
        if not is_library(code.co_filename):
            return None
        if "/torch/distributions/" in code.co_filename.replace("\\", "/") and code.co_name == "log_prob":
            return code.co_qualname.split(".")[0]
    return None


def _at_zero(case: Case, found: Seen) -> Claim | None:
    """A logarithm of, or a division by, a target of zero in somebody's own loss."""
    if case.phase != "loss" or found.mechanism.kind not in (LOG_OF_ZERO, DIVIDE_BY_ZERO):
        return None
    operand = found.mechanism.operand
    if not _is_data(case, found, operand) or found.node is None:
        return None
    if any(m.base in SUMS for m in made_by(found.lineage, found.node, operand)):
        return None
    birth = found.birth
    places = 0 if birth.bad is None else int(birth.bad.sum())
    count = 0 if birth.bad is None else birth.bad.numel()
    why = OUTSIDE.say(distribution="the loss", value=0.0, op=birth.name, places=places, count=count)
    return Claim("possible", why, (FROM_DATA.say(),), 2.0)


def remedies(case: Case) -> list[Remedy]:
    return offer(case, "keep-target", "finite-mask", "drop-bad-rows", "clean-data", "skip-batch")
