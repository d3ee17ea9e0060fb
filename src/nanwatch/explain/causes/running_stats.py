"""running-stats: BatchNorm or EMA statistics became non-finite or degenerate earlier."""

from __future__ import annotations

import torch

from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.lineage import Lineage, Node
from nanwatch.explain.mechanism import DIVIDE_BY_ZERO, INVALID_DOMAIN, LOG_OF_ZERO, OVERFLOW
from nanwatch.explain.remedies import offer
from nanwatch.explain.state import (
    BUFFER,
    Held,
    bad_weights,
    came_bad,
    count_bad,
    found_there,
    is_statistic,
    of_modules,
    short,
    statistics,
)
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite

PAGE = Page(
    Text("Running statistics", "运行统计量"),
    Text(
        "A layer keeps statistics from step to step (BatchNorm's mean and variance, an observation filter, "
        "the range of an observer, an average of weights), and they became NaN, infinite, negative or zero "
        "at some earlier step. One bad batch is enough, even one that was skipped afterwards: the "
        "statistics are taken in the forward pass. Often nothing shows until the model is evaluated.",
        "某一层逐步保存着统计量（BatchNorm 的均值和方差、观测滤波器、量程观察器、权重的滑动平均），"
        "它们在更早的某一步变成了 NaN、无穷、负数或零。一个坏批次就足够了，即使这个批次后来被跳过："
        "统计量在前向时就已更新。往往要到评估模型时才会显露。",
    ),
    Text(
        "The buffer that is bad; the same step with fresh statistics runs finite.",
        "缓冲区本身是坏的；换成全新的统计量，同一步的结果是有限的。",
    ),
    Text(
        "Reset the statistics (`reset_running_stats()`) and let them be learned again, or go back to a "
        "checkpoint; put buffers back when a step is skipped; compute a variance with a stable formula and "
        "keep it above an eps.",
        "重置统计量（`reset_running_stats()`）后重新积累，或回到较早的检查点；跳过一步时也要恢复缓冲区；"
        "用稳定的公式计算方差，并保证它不小于 eps。",
    ),
    ("infer_batchnorm_negative_var", "fwd_skipped_batches", "fwd_observation_filter", "infer_range_observer"),
)
BAD = Text(
    "{name} holds {bad} non-finite of {count} values: statistics that an earlier step spoiled.",
    "{name} 有 {bad}/{count} 个非有限值：统计量在更早的一步被破坏了。",
)
NEGATIVE = Text(
    "{name}, a variance kept from step to step, holds {value}.",
    "{name} 是逐步保存的方差，其中有值 {value}。",
)
DEGENERATE = Text(
    "{op} was given {value}, computed from the statistics {names} alone.",
    "{op} 得到的操作数是 {value}，它完全由统计量 {names} 算出。",
)
SPOILT = Text(
    "{op} at {line} writes a non-finite value into the statistics {name}.",
    "{op}（{line}）把非有限值写进了统计量 {name}。",
)
KINDS = (DIVIDE_BY_ZERO, INVALID_DOMAIN, LOG_OF_ZERO, OVERFLOW)


def weigh(case: Case) -> Claim | Against | None:
    return _non_finite(case) or _negative_variance(case) or _degenerate(case)


def _non_finite(case: Case) -> Claim | None:
    """Buffers that an earlier step made bad, and this one read; or that this very op spoils."""
    if case.phase not in ("weights", "forward", "data") or (
        case.phase == "data" and case.located.op is not None
    ):
        return None
    bad = [h for h in bad_weights(case) if h.kind == BUFFER]
    kept = [h for h in bad if is_statistic(case, h) and not _is_mask(h.tensor)]
    if not kept or any(h.kind != BUFFER for h in bad_weights(case)):
        return None
    first = kept[0]
    if came_bad(case, first):
        return None  # it was loaded so
    if case.phase != "weights" and not _was_bad_before(case, first):
        return None  # this step spoils it, and fails of the same thing
    why = BAD.say(name=first.name, bad=count_bad(first.tensor), count=first.tensor.numel())
    fresh = case.outcome("fresh-statistics").finite
    return Claim("proved" if fresh else "likely", why, (), 3.0)


def _is_mask(tensor: torch.Tensor) -> bool:
    """Whether only -inf is not finite in it: a mask or scores, on purpose."""
    values = tensor.detach()
    return not values.is_complex() and bool((torch.isfinite(values) | (values == float("-inf"))).all())


def _was_bad_before(case: Case, held: Held) -> bool:
    before = found_there(case, held)
    return not before or not is_finite(before[0])


def _negative_variance(case: Case) -> Claim | None:
    """Statistics that the birth op itself was given: batch norm with a variance that cannot be one."""
    birth = case.birth
    variance = None if birth is None else birth.tensor("running_var")
    if birth is None or variance is None or not measurable(variance):
        return None
    training = birth.arguments.get("training", birth.arguments.get("train", False))
    if training:
        return None
    mean = birth.tensor("running_mean")
    eps = birth.number("eps") or 0.0
    value = float(torch.nan_to_num(variance.detach().float(), nan=-1.0).min())
    if value + eps > 0 and is_finite(variance) and (mean is None or is_finite(mean)):
        return None
    fresh = case.outcome("fresh-statistics").finite
    why = NEGATIVE.say(name=_name_of(case, variance, "running_var"), value=short(value))
    return Claim("proved" if fresh is not False else "likely", why, (), 3.0)


def _name_of(case: Case, value: torch.Tensor, attribute: str) -> str:
    for each in of_modules(case.models):
        if (
            each.attribute == attribute
            and each.tensor.shape == value.shape
            and torch.equal(each.tensor, value)
        ):
            return each.name
    return attribute


def _degenerate(case: Case) -> Claim | None:
    """An operand that is zero or negative and was computed from statistics alone."""
    birth, mechanism = case.birth, case.mechanism
    if birth is None or case.phase not in ("forward", "loss") or mechanism.kind not in KINDS:
        return None
    kept = statistics(case)
    if not kept or not mechanism.operand:
        return None
    lineage = case.lineage
    node = lineage.node_of(birth.op)
    names = None if node is None else _made_of(case, lineage, node, mechanism.operand, kept)
    if not names or _as_new(case, [h for h in kept if h.name in names]):
        return None
    value = short(mechanism.value) if mechanism.value is not None else "?"
    fresh = case.outcome("fresh-statistics")
    if fresh.value is False:
        return None  # whatever the statistics hold, the op meets the same value
    why = DEGENERATE.say(op=birth.name, value=value, names=", ".join(names))
    return Claim("proved" if fresh.finite else "likely", why, (), 3.0)


def _as_new(case: Case, kept: list[Held]) -> bool:
    """Whether they hold nothing but the zeros they were made with: no earlier step has spoiled them."""
    if case.history:
        return False
    return all(not bool(value.any()) for h in kept for value in (found_there(case, h) or [h.tensor])[:1])


def _made_of(case: Case, lineage: Lineage, node: Node, operand: str, kept: list[Held]) -> list[str] | None:
    """The statistics that the operand was computed from; None when anything else went into it after them."""
    by_key = _keys_of(case, lineage, kept)
    found: dict[str, None] = {}
    waiting = [(source, key) for given, source, key in node.inputs if given == operand]
    seen: set[int] = set()
    while waiting:
        source, key = waiting.pop()
        if key in by_key and _is_cache(lineage, key):
            return None
        if key in by_key:
            found[by_key[key]] = None
        elif source is None or source not in lineage.nodes:
            leaf = lineage.leaves.get(key)
            if leaf is None or leaf.numel() != 1 or leaf.requires_grad:
                return None
        elif source not in seen:
            seen.add(source)
            waiting += [(s, k) for _, s, k in lineage.nodes[source].inputs]
    return list(found)


def _is_cache(lineage: Lineage, key: int) -> bool:
    """Whether the step writes into a part of this memory alone: a cache of values, one beside the other.
    Statistics are renewed as a whole."""
    leaf = lineage.leaves.get(key)
    written = [
        made.count
        for node in lineage.nodes.values()
        if key in node.keys and not node.is_view
        for made, place in zip(node.outputs, node.keys, strict=True)
        if place == key
    ]
    if leaf is None or leaf.layout is not torch.strided or not written:
        return False
    return max(written) < _size(leaf)


def _size(tensor: torch.Tensor) -> int:
    """Of all the memory behind it: what was read first may have been a part of it."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def _keys_of(case: Case, lineage: Lineage, kept: list[Held]) -> dict[int, str]:
    """Memory of the statistics -> their name. A replay works on copies of those that the step changes: such
    a copy is known by what it holds."""
    names = {h.key: h.name for h in kept}
    known = {id(t) for t in (*case.tape.used.values(), *case.tape.made.values())}
    values = [(h.name, value) for h in kept for value in (h.tensor, *found_there(case, h))]
    for key, leaf in lineage.leaves.items():
        if key in names or id(leaf) in known or leaf.requires_grad:
            continue
        name = next((n for n, v in values if _alike(leaf, v)), None)
        if name is not None:
            names[key] = name
    return names


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())


def remedies(case: Case) -> list[Remedy]:
    modules = (module for model in case.models for module in model.modules())
    reset = ("reset-running-stats",) if any(hasattr(m, "reset_running_stats") for m in modules) else ()
    return offer(case, *reset, "roll-back", "larger-eps", "clamp-divisor")
