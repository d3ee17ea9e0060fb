"""optimizer-state: moments are non-finite, negative or swapped, though the gradients are fine."""

from __future__ import annotations

import torch

from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.mechanism import INVALID_DOMAIN
from nanwatch.explain.remedies import offer
from nanwatch.explain.state import Held, count_bad, of_optimizer, short
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.tensors import is_finite

PAGE = Page(
    Text("Optimizer state", "优化器状态"),
    Text(
        "The gradients and the weights are fine, but what the optimizer remembers is not: a second moment "
        "that is negative, moments that were swapped or belong to other parameters, state that was restored "
        "from a format that cannot hold it. The root of a negative second moment is NaN, and one update "
        "spreads it over the weights.",
        "梯度和权重都正常，但优化器记住的东西不对：二阶矩为负、动量互换或属于别的参数、"
        "从存不下它的格式中恢复的状态。负的二阶矩开方得到 NaN，一次更新就会把它传遍权重。",
    ),
    Text(
        "The state tensor that cannot be what it is (a negative mean of squares, a mean whose square "
        "exceeds the mean of squares), while gradient and weight are finite; the same update with fresh "
        "state is finite.",
        "状态张量出现了不可能的值（平方的均值为负，或均值的平方大于平方的均值），而梯度与权重都有限；"
        "换成全新状态，同一次更新结果有限。",
    ),
    Text(
        "Start with fresh optimizer state, or load the state that belongs to this model: same order of "
        "parameters, same optimizer, full precision. After a rollback of the weights, roll back the state "
        "too.",
        "用全新的优化器状态开始，或加载真正属于此模型的状态：参数顺序一致、优化器一致、保持全精度。"
        "回滚权重时也要回滚状态。",
    ),
    (
        "opt_fused_adam_negative_state",
        "opt_resume_compact_state",
        "opt_reordered_groups",
        "opt_sparse_accumulators",
    ),
)
NEGATIVE = Text(
    "{name}, a mean of squares, holds {count} negative values, the lowest {value}.",
    "{name} 是平方的均值，却有 {count} 个负值，最小为 {value}。",
)
SWAPPED = Text(
    "{mean} squared exceeds {squares} at {count} places (by up to {value}): they do not belong together.",
    "{mean} 的平方在 {count} 处大于 {squares}（最多超出 {value}）：二者不属于同一个参数。",
)
NOT_FINITE = Text(
    "{name} holds {bad} non-finite of {count} values, before this update.",
    "{name} 在这次更新之前就有 {bad}/{count} 个非有限值。",
)
ROOT_OF = Text(
    "{op} in the optimizer was given {value}; {name} is negative there.",
    "优化器中的 {op} 得到 {value}；{name} 在该处为负。",
)
MEANS_OF_SQUARES = ("exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum", "acc_delta", "exp_inf")
"""What torch's own optimizers call what cannot be negative."""

PAIRS = (("grad_avg", "square_avg"),)
"""(a mean, the mean of the squares of the same values)."""


def weigh(case: Case) -> Claim | Against | None:
    states = of_optimizer(case)
    if case.trouble.seen_in == "hyperparameter" or not states:
        return None
    if case.phase not in ("optimizer", "weights"):
        return _written_bad(case, states)
    if case.phase == "weights" and case.located.op is not None:
        return _written_bad(case, states)
    why = _negative(states) or _swapped(states) or _negative_root(case, states)
    if why is None:
        return _not_finite(case, states)
    fresh = case.outcome("fresh-optimizer-state")
    if fresh.finite is False:
        return Claim("likely", why, (fresh.text,), 3.0)
    return Claim("proved", why, (fresh.text,) if fresh.finite else (), 3.0)


def _negative(states: list[Held]) -> str | None:
    for state in states:
        if state.attribute in MEANS_OF_SQUARES and state.tensor.is_floating_point():
            below = state.tensor.detach() < 0
            if bool(below.any()):
                value = float(state.tensor.detach()[below].min())
                return NEGATIVE.say(name=state.name, count=int(below.sum()), value=short(value))
    return None


def _swapped(states: list[Held]) -> str | None:
    by_name = {(id(s.parameter), s.attribute): s for s in states}
    for mean_name, squares_name in PAIRS:
        for state in states:
            squares = by_name.get((id(state.parameter), squares_name))
            if state.attribute != mean_name or squares is None:
                continue
            excess = state.tensor.detach().double() ** 2 - squares.tensor.detach().double()
            beyond = excess > 1e-2 * squares.tensor.detach().double().abs() + 1e-12
            if bool(beyond.any()):
                return SWAPPED.say(
                    mean=state.name,
                    squares=squares.name,
                    count=int(beyond.sum()),
                    value=short(float(excess[beyond].max())),
                )
    return None


def _negative_root(case: Case, states: list[Held]) -> str | None:
    """An optimizer of somebody's own: it takes a root, and the state of that shape is negative there."""
    birth, mechanism = case.birth, case.mechanism
    if birth is None or case.phase != "optimizer" or mechanism.kind != INVALID_DOMAIN or birth.bad is None:
        return None
    for state in states:
        value = state.tensor.detach()
        if (
            value.shape == birth.bad.shape
            and value.is_floating_point()
            and bool((value[birth.bad] < 0).all())
        ):
            operand = birth.tensor(mechanism.operand)
            if operand is not None and _same_sign(operand, value):
                return ROOT_OF.say(op=birth.name, value=short(mechanism.value or 0.0), name=state.name)
    return None


def _same_sign(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(((a.detach() < 0) == (b < 0)).all())


def _not_finite(case: Case, states: list[Held]) -> Claim | None:
    """State that was bad before the update: the update itself would have had to make it of finite values."""
    bad = [s for s in states if not is_finite(s.tensor)]
    if not bad or case.outcome("poisoned-update").value is True:
        return None
    birth = case.birth
    came_in = birth is not None and case.phase == "optimizer" and bool(birth.op.bad_inputs)
    if not came_in and (birth is not None or case.outcome("fresh-optimizer-state").finite is not True):
        return None
    return Claim("likely", _said(bad[0]), (), 3.0)


def _written_bad(case: Case, states: list[Held]) -> Claim | None:
    """The op that brought it in wrote it into the state."""
    op = case.located.op
    written = set() if op is None else {o.key for o in op.bad_outputs}
    mine = next((s for s in states if s.key in written), None)
    return None if mine is None else Claim("proved", _said(mine), (), 3.0)


def _said(state: Held) -> str:
    return NOT_FINITE.say(name=state.name, bad=count_bad(state.tensor), count=state.tensor.numel())


def remedies(case: Case) -> list[Remedy]:
    return offer(case, "reset-optimizer-state", "roll-back", "check-loading")
