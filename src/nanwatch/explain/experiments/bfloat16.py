"""The step once more with bfloat16 in the place of float16."""

from __future__ import annotations

import torch

from nanwatch.explain.at_birth import finite_where_it_matters
from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.experiments.float32 import rerun_in
from nanwatch.explain.text import Text
from nanwatch.watching.tape import tensors_in

NAME = "bfloat16"
TITLE = Text("running the step in bfloat16", "用 bfloat16 重新运行这一步")
FINITE = Text("finite", "结果有限")
FAILS = Text("fails in bfloat16 too", "用 bfloat16 也失败")


def applies(case: Case) -> bool:
    if not case.tape.entries or case.phase in ("weights", "optimizer"):
        return False
    return computes_in_float16(case)


def computes_in_float16(case: Case) -> bool:
    """In autocast, in weights, or in what a call was given or made."""
    if any(p.dtype is torch.float16 for m in case.models for p in m.parameters()):
        return True
    for entry in (e for tape in (case.tape, *case.trouble.earlier) for e in tape.entries):
        if any(on and dtype is torch.float16 for _, on, dtype in entry.context.autocast):
            return True
        if any(t.dtype is torch.float16 for t in tensors_in((entry.args, entry.kwargs, entry.outputs))):
            return True
    return False


def run(case: Case) -> Outcome:
    finite = finite_where_it_matters(case, rerun_in(case, torch.bfloat16))
    if finite is None:
        return Outcome(None, "")
    return Outcome(finite, (FINITE if finite else FAILS).say())
