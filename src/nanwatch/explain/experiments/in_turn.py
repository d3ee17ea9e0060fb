"""The step again, with the tasks that it hands to other threads run one after the other; if that does not
help, each of them before the thread that handed it over goes on."""

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
AWAITED = Text(
    "runs finite when each task of a worker thread is done before the step goes on",
    "每个工作线程任务都先完成、这一步才继续时，结果有限",
)
TIMES = 2


def applies(case: Case) -> bool:
    return bool(case.model_calls) and case.phase in ("forward", "loss", "backward") and were_handed_over()


def run(case: Case) -> Outcome:
    finite, threads = _tried(case, at_once=False)
    if finite:
        return Outcome(True, FINITE.say(threads=threads))
    if _tried(case, at_once=True)[0]:
        return Outcome(True, AWAITED.say())
    return Outcome(finite, "" if finite is None else FAILS.say(threads=threads))


def _tried(case: Case, at_once: bool) -> tuple[bool | None, int]:
    """Whether the step runs finite so each time, and how many threads there were."""
    for _ in range(TIMES):
        with one_at_a_time(at_once) as turns:
            finite = runs_finite(case.rerun())
        threads = len(turns.threads)
        if finite is None or not turns.kept or threads < (1 if at_once else 2):
            return None, threads
        if not finite:
            return False, threads
    return True, threads
