"""The step without the rows of the batch that look guilty."""

from __future__ import annotations

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.samples import guilty_rows, without
from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes
from nanwatch.replay.samples import bad_rows_of_batch, batch_size

NAME = "rows-dropped"
TITLE = Text("running the step without the suspect rows", "去掉可疑的样本行后重新运行这一步")
FINITE = Text(
    "without row {rows} of the batch the step runs finite", "去掉批次中第 {rows} 行后，这一步结果有限"
)
STILL = Text(
    "without row {rows} of the batch the step still fails", "去掉批次中第 {rows} 行后，这一步仍然失败"
)


def applies(case: Case) -> bool:
    """Not where rows that are bad as well would stay: they were spoilt before the model was given them."""
    size = batch_size(case.tape)
    rows = guilty_rows(case)
    if not case.model_calls or not set(bad_rows_of_batch(case.tape)) <= set(rows):
        return False
    return size is not None and 0 < len(rows) < size


def run(case: Case) -> Outcome:
    """`value`: the rows."""
    rows, size = guilty_rows(case), batch_size(case.tape) or 0
    finite = runs_finite(case.rerun(Changes(outside=without(rows, size))))
    if finite is None:
        return Outcome(None, "")
    shown = ", ".join(map(str, rows))
    return Outcome(finite, (FINITE if finite else STILL).say(rows=shown), rows)
