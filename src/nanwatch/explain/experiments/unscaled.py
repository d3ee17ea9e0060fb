"""The step once more without the scale of its GradScaler: what the optimizer should have been given."""

from __future__ import annotations

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.history import usual_weights, weights_on
from nanwatch.explain.text import Text
from nanwatch.replay.again import run_again
from nanwatch.tensors import is_finite
from nanwatch.watching.tape import Tape

NAME = "unscaled"
TITLE = Text("running the step without the loss scale", "去掉损失缩放后重新运行这一步")
FINITE = Text(
    "without the scale the gradients are finite: the largest is {largest:.3g}",
    "去掉缩放后梯度有限：最大值为 {largest:.3g}",
)
FAILS = Text("fails without the scale too", "去掉缩放后也失败")


def applies(case: Case) -> bool:
    return _scaled(case) is not None


def run(case: Case) -> Outcome:
    tape = _scaled(case)
    if tape is None:
        return Outcome(None, "")
    earlier = tuple(t for t in case.trouble.earlier if t.step < tape.step)
    with usual_weights(p for p in weights_on(tape) if not is_finite(p)):  # the update may have spoiled them
        again = run_again(tape, earlier, case.calls, without_scale=True)
    finite = runs_finite(again)
    if finite is None or not again.gradients:
        return Outcome(None, "")
    if not finite:
        return Outcome(False, FAILS.say())
    largest = max(float(g.detach().abs().max()) for _, g in again.gradients if g.numel())
    return Outcome(True, FINITE.say(largest=largest))


def _scaled(case: Case) -> Tape | None:
    """The last step on record whose loss a GradScaler multiplied."""
    for tape in (case.tape, *reversed(case.trouble.earlier)):
        if any(e.kind == "backward" and e.unscaled is not None for e in tape.entries):
            return tape
    return None
