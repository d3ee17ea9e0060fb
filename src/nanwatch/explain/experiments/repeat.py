"""The step once more, unchanged: does it fail again?"""

from __future__ import annotations

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.text import Text

NAME = "repeat"
TITLE = Text("running the step again, unchanged", "原样重新运行这一步")
AGAIN = Text("fails again", "再次失败")
NOT_AGAIN = Text("runs finite", "结果有限，未再失败")


def applies(case: Case) -> bool:
    return bool(case.tape.entries)


def run(case: Case) -> Outcome:
    finite = runs_finite(case.rerun())
    if finite is None:
        return Outcome(None, "")
    return Outcome(finite, (NOT_AGAIN if finite else AGAIN).say())
