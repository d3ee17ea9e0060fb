"""The step with fresh memory filled: with NaN, then with zeros. What nobody writes before it is read shows
itself.

torch's own `fill_uninitialized_memory` does the first for a whole process, and also for the scratch
memory of its kernels; here only what the program itself asks for is filled, and no setting of the program
is touched.
"""

from __future__ import annotations

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.instead import Filled
from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes

NAME = "poisoned-memory"
TITLE = Text("filling fresh memory, to see who reads it unwritten", "填充新分配的内存，看谁未写就读")
READ = Text(
    "with fresh memory full of NaN the step fails, full of zeros it runs finite: memory is read that nobody "
    "wrote",
    "新内存全填 NaN 时这一步失败，全填 0 时结果有限：读取了从未写过的内存",
)
NOT_READ = Text(
    "what fresh memory holds makes no difference: nobody reads it unwritten",
    "新内存中放什么都不影响结果：没有未写先读",
)
EITHER_WAY = Text("with fresh memory full of zeros it fails all the same", "新内存全填 0 时同样失败")


def applies(case: Case) -> bool:
    return bool(case.model_calls) and case.phase not in ("optimizer", "weights")


def run(case: Case) -> Outcome:
    """`value`: whether memory that nobody wrote reaches the loss."""
    zeros = runs_finite(case.rerun(Changes(around=lambda: Filled(0.0))))
    if zeros is None:
        return Outcome(None, "")
    if not zeros:
        return Outcome(False, EITHER_WAY.say(), False)
    poisoned = runs_finite(case.rerun(Changes(around=lambda: Filled(float("nan")))))
    if poisoned is None:
        return Outcome(None, "")
    return Outcome(None if poisoned else True, (NOT_READ if poisoned else READ).say(), not poisoned)
