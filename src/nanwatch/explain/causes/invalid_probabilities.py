"""invalid-probabilities: sampling or a likelihood from probabilities that are negative or sum to zero."""

from __future__ import annotations

import torch

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.mechanism import DIVIDE_BY_ZERO, INVALID_DOMAIN
from nanwatch.explain.provenance import made_by
from nanwatch.explain.remedies import offer
from nanwatch.explain.samples import about_rows
from nanwatch.explain.state import born_at, short
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.watching.stack import Stack, is_library
from nanwatch.watching.tape import Entry

PAGE = Page(
    Text("Invalid probabilities", "无效的概率"),
    Text(
        "What is sampled from, or scored, is no distribution: all probabilities of a row are zero (a filter "
        "took every token, no action is allowed, two distributions are equal and their difference is "
        "taken), one is negative, or they do not add up. Dividing by their sum, or `multinomial`, then "
        "gives NaN or raises.",
        "用来采样或计算似然的并不是一个分布：某一行的概率全为零（过滤器删掉了所有 token、没有可行的动作、两"
        "个分布相等而取了差），有负值，或者加起来不为一。再除以它们的和，或调用 `multinomial`，就得到 NaN 或"
        "报错。",
    ),
    Text(
        "The parameters of the distribution: the row that sums to zero, the value below zero.",
        "分布的参数：和为零的那一行，或小于零的那个值。",
    ),
    Text(
        "Keep at least one choice in every row (the most likely token, a no-op action), work with logits "
        "and a masked softmax instead of products of probabilities, and fall back to the unfiltered "
        "distribution when nothing is left.",
        "每一行至少保留一个选项（最可能的 token、空操作），用 logits 加掩码 softmax 代替概率相乘；"
        "如果什么都不剩，就退回到未过滤的分布。",
    ),
    ("infer_top_p_renormalise", "infer_draft_and_verify", "loss_routing_policy"),
)
NO_MASS = Text(
    "The probabilities at {line} sum to 0 in {rows} of {count} rows: there is nothing to choose from.",
    "{line} 处的概率在 {count} 行中有 {rows} 行的和为 0：没有可选的项。",
)
NEGATIVE = Text(
    "The probabilities given to {op} at {line} go down to {value}.",
    "{line} 处给 {op} 的概率低至 {value}。",
)
SAMPLED = Text("they are sampled from by {op}", "随后由 {op} 从中采样")
DISTRIBUTION = Text("they are the parameters of a distribution of torch", "它们是 torch 分布的参数")
SAMPLING = ("multinomial", "bernoulli", "categorical", "poisson", "binomial")


def weigh(case: Case) -> Claim | Against | None:
    birth = case.birth
    if birth is None or case.phase in ("weights", "optimizer", "backward"):
        return None
    used = _used_for(case, birth)
    if used is None:
        return None
    if case.mechanism.kind == DIVIDE_BY_ZERO:
        return _without_mass(case, birth, used)
    value = case.mechanism.value
    if case.mechanism.kind == INVALID_DOMAIN and value is not None and value < 0 and _in_distribution(birth):
        why = NEGATIVE.say(op=birth.name, line=born_at(case), value=short(value))
        return Claim("likely", why, (used,), 2.0)
    return None


def _without_mass(case: Case, birth: BirthOp, used: str) -> Claim | None:
    """Non-negative values divided by their own sum, which is zero."""
    values, total = birth.tensor("self"), birth.tensor("other")
    if values is None or total is None or values.is_complex() or not bool((values >= 0).all()):
        return None
    try:
        zero = (total == 0).expand(values.shape)
    except RuntimeError:
        return None
    elementwise = total.numel() >= values.numel() > 1
    if elementwise or bool((values[zero] != 0).any()) or not _is_own_sum(case, birth, values, total):
        return None
    why = NO_MASS.say(line=born_at(case), rows=int((total == 0).sum()), count=total.numel())
    evidence = (used, *about_rows(case, case.located.birth.samples))
    return Claim("proved", why, evidence, 2.0)


def _is_own_sum(case: Case, birth: BirthOp, values: torch.Tensor, total: torch.Tensor) -> bool:
    """Whether the divisor was added up from the very values that it divides."""
    node = case.lineage.node_of(birth.op)
    if node is None or all(m.base != "sum" for m in made_by(case.lineage, node, "other")):
        return False
    lined_up = total.reshape((1,) * (values.dim() - total.dim()) + tuple(total.shape))
    dims = [d for d in range(values.dim()) if lined_up.shape[d] == 1]
    added = values.detach().double().sum(dims, keepdim=True) if dims else values.detach().double()
    return torch.allclose(added, lined_up.detach().double(), rtol=1e-2, atol=1e-6)


def _used_for(case: Case, birth: BirthOp) -> str | None:
    """That the values are probabilities: a distribution of torch computes with them, or they are sampled
    from."""
    if _in_distribution(birth):
        return DISTRIBUTION.say()
    after = _after(case, birth)
    for entry in after:
        if _draws(entry):
            return SAMPLED.say(op=entry.call.__name__)
    lineage = case.lineage
    node = lineage.node_of(birth.op)
    for each in () if node is None else lineage.downstream(node, 20):
        if each.base in SAMPLING:
            return SAMPLED.say(op=each.base)
        if _by_distribution(each.stack):
            return DISTRIBUTION.say()
    return None


def _after(case: Case, birth: BirthOp) -> list[Entry]:
    """The last calls of the tape, from the one that gave birth on."""
    return [e for e in case.tape.entries[-8:] if e.kind == "op"]


def _draws(entry: Entry) -> bool:
    """A sampling call that was given something that is not finite."""
    if getattr(entry.call, "__name__", "") not in SAMPLING:
        return False
    given = [t for t in entry.args if isinstance(t, torch.Tensor) and t.is_floating_point()]
    return any(not bool(torch.isfinite(t).all()) for t in given)


def _in_distribution(birth: BirthOp) -> bool:
    return _by_distribution(birth.op.stack)


def _by_distribution(stack: Stack) -> bool:
    """Whether an op was called by torch.distributions, on behalf of the program."""
    for code, _ in stack:
        if not is_library(code.co_filename):
            return False
        if "/torch/distributions/" in code.co_filename.replace("\\", "/"):
            return True
    return False


def remedies(case: Case) -> list[Remedy]:
    return offer(case, "clamp-divisor", "guarded-mean", "safe-masked-softmax", "drop-bad-rows")
