"""The step with fresh running statistics."""

from __future__ import annotations

import torch
from torch import nn

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.instead import with_values
from nanwatch.explain.state import Held, statistics
from nanwatch.explain.still_there import still_there
from nanwatch.explain.text import Text

NAME = "fresh-statistics"
TITLE = Text("running the step with fresh running statistics", "用全新的运行统计量重新运行这一步")
FINITE = Text("with fresh running statistics the step runs finite", "换成全新的运行统计量后，这一步结果有限")
STILL = Text("with fresh running statistics the step still fails", "换成全新的运行统计量后，这一步仍然失败")


def applies(case: Case) -> bool:
    return bool(case.model_calls) and bool(statistics(case))


def run(case: Case) -> Outcome:
    """Nobody knows with what a layer of somebody's own begins: zeros are tried, then ones. The value is
    whether the op itself was finite too."""
    kept = statistics(case)
    finite: bool | None = None
    for start in (0.0, 1.0):
        again = with_values(case, [(h, _fresh(h, start)) for h in kept])
        now = runs_finite(again)
        if now and not still_there(case, again):
            return Outcome(True, FINITE.say(), True)
        finite = now if finite is None or now else finite
    if finite is None:
        return Outcome(None, "")
    return Outcome(finite, (FINITE if finite else STILL).say(), False)


def _fresh(held: Held, start: float) -> torch.Tensor:
    if isinstance(held.owner, nn.modules.batchnorm._NormBase):
        start = 1.0 if held.attribute == "running_var" else 0.0
    return torch.full_like(held.tensor.detach(), start)
