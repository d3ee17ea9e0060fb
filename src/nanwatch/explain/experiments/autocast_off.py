"""The step once more without autocast."""

from __future__ import annotations

import torch

from nanwatch.explain.at_birth import finite_where_it_matters
from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes
from nanwatch.replay.blame import silent_damage

NAME = "autocast-off"
TITLE = Text("running the step without autocast", "关闭 autocast 重新运行这一步")
FINITE = Text("finite", "结果有限")
FAILS = Text("fails without autocast too", "关闭 autocast 也失败")


def applies(case: Case) -> bool:
    return any(enabled for e in case.tape.entries for _, enabled, _ in e.context.autocast)


def run(case: Case) -> Outcome:
    torch.clear_autocast_cache()
    again = case.rerun(Changes(autocast=False))
    finite = finite_where_it_matters(case, again)
    if finite and case.trouble.seen_in == "trace":
        finite = not silent_damage(again.tracer.trace, again.tracer.step)
    if finite is None:
        return Outcome(None, "")
    return Outcome(finite, (FINITE if finite else FAILS).say())
