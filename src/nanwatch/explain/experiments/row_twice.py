"""The step with its only row twice in the batch: one sample has no variance, two have."""

from __future__ import annotations

import torch

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes
from nanwatch.replay.samples import batch_size

NAME = "row-twice"
TITLE = Text("running the step with its only row twice", "让唯一的一行在批次中出现两次，重新运行这一步")
FINITE = Text("with its only row twice the step runs finite", "唯一的一行出现两次时，这一步结果有限")
FAILS = Text("with its only row twice the step fails too", "唯一的一行出现两次时，这一步同样失败")


def applies(case: Case) -> bool:
    return bool(case.model_calls) and batch_size(case.tape) == 1


def run(case: Case) -> Outcome:
    finite = runs_finite(case.rerun(Changes(outside=_twice)))
    if finite is None:
        return Outcome(None, "")
    return Outcome(finite, (FINITE if finite else FAILS).say())


def _twice(given: torch.Tensor) -> torch.Tensor:
    return torch.cat([given, given]) if given.dim() and given.shape[0] == 1 else given
