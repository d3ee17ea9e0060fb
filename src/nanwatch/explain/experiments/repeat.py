"""The step again, unchanged, three times: does it fail again, are the repeats alike, and do they agree with
what was recorded wherever that is finite?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.text import Text
from nanwatch.replay.again import Again
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite

NAME = "repeat"
TITLE = Text("running the step again, unchanged", "原样重新运行这一步")
AGAIN = Text("fails again", "再次失败")
NOT_AGAIN = Text("runs finite", "结果有限，未再失败")
ALIKE = Text("runs finite {times} times, bit for bit alike", "重复 {times} 次结果均有限，且逐位相同")
UNLIKE = Text(
    "runs finite {times} times, each with other values", "重复 {times} 次结果均有限，但每次数值不同"
)
TIMES = 3


@dataclass(frozen=True)
class Repeats:
    """Of a step that did not fail again."""

    alike: bool
    """Every repeat gave the same bits."""
    agrees: bool | None
    """Where the recorded values are finite, they are the same bits too; None when no finite one is left."""
    bad: int = 0
    """Of the recorded values that were compared: how many are not finite."""
    count: int = 0


def applies(case: Case) -> bool:
    return bool(case.tape.entries) and not case.in_own_code


def run(case: Case) -> Outcome:
    first = case.rerun()
    finite = runs_finite(first)
    if finite is None:
        return Outcome(None, "")
    if not finite:
        return Outcome(False, AGAIN.say())
    if first.cut_off or any(call.overwritten for call in case.model_calls):
        return Outcome(
            None, ""
        )  # no repeat of it: a call has changed what it was given, or something is missing
    kept = [_made(first)]
    while len(kept) < TIMES and not case.budget.spent:
        again = case.rerun()
        if not runs_finite(again):
            return Outcome(None, "")
        kept.append(_made(again))
    if len(kept) < 2:
        return Outcome(True, NOT_AGAIN.say())
    alike = all(_same(kept[0], other) for other in kept[1:])
    agrees, bad, count = _against_record(case, first)
    text = (ALIKE if alike else UNLIKE).say(times=len(kept))
    return Outcome(True, text, Repeats(alike, agrees, bad, count))


def _made(again: Again) -> list[torch.Tensor]:
    return [t.detach().clone() for t in [*again.outputs, *again.losses, *(g for _, g in again.gradients)]]


def _same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def _against_record(case: Case, again: Again) -> tuple[bool | None, int, int]:
    """(do the finite values of the record agree, how many are not finite, of how many)."""
    agree: list[bool] = []
    bad = count = 0
    for was, now in _pairs(case, again):
        if was.shape != now.shape or was.dtype != now.dtype or not measurable(was):
            continue
        good = torch.isfinite(was)
        count, bad = count + was.numel(), bad + int((~good).sum())
        if bool(good.any()):
            agree.append(bool((was[good] == now[good]).all()))
    if not bad:
        return None, 0, count
    return (all(agree) if agree else None), bad, count


def _pairs(case: Case, again: Again) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(recorded, repeated): what the last model returned, or, if that is finite, the gradients."""
    calls = case.model_calls
    recorded = [t for t, _ in calls[-1].made] if calls else []
    pairs = list(zip(recorded, again.outputs, strict=False)) if len(recorded) == len(again.outputs) else []
    if any(measurable(was) and not is_finite(was) for was, _ in pairs):
        return [(was.detach(), now.detach()) for was, now in pairs]
    sums: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for parameter, gradient in again.gradients:
        had = sums.get(id(parameter))
        sums[id(parameter)] = (parameter, gradient if had is None else had[1] + gradient)
    return [(p.grad.detach(), g.detach()) for p, g in sums.values() if p.grad is not None]
