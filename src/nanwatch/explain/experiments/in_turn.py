"""The step again, with the tasks that it hands to other threads run one after the other."""

from __future__ import annotations

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.text import Text
from nanwatch.watching.worker_threads import one_at_a_time, were_handed_over

NAME = "in-turn"
TITLE = Text(
    "running the step with the tasks of its worker threads one after the other",
    "让各工作线程的任务逐个执行，重新运行这一步",
)
FINITE = Text(
    "runs finite when the tasks of {threads} worker threads come one after the other",
    "{threads} 个工作线程的任务逐个执行时结果有限",
)
FAILS = Text(
    "fails too when the tasks of {threads} worker threads come one after the other",
    "{threads} 个工作线程的任务逐个执行时同样失败",
)


TIMES = 2


def applies(case: Case) -> bool:
    return bool(case.model_calls) and case.phase in ("forward", "loss", "backward") and were_handed_over()


def run(case: Case) -> Outcome:
    for _ in range(TIMES):
        with one_at_a_time() as turns:
            finite = runs_finite(case.rerun())
        if finite is None or not turns.kept or len(turns.threads) < 2:
            return Outcome(None, "")
        if not finite:
            return Outcome(False, FAILS.say(threads=len(turns.threads)))
    return Outcome(True, FINITE.say(threads=len(turns.threads)))
