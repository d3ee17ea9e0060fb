"""The last recorded step trained on with the program's own rate and with lower ones."""

from __future__ import annotations

from dataclasses import dataclass

from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.text import Text
from nanwatch.explain.training_on import RISEN, How, Rise, can_train, own_rise, rate_of, stays

NAME = "lower-rate"
TITLE = Text("training on from here with lower learning rates", "用更低的学习率从这里继续训练")
STOPS = Text(
    "with the program's rate {rate:.3g} the gradients grow {times:.3g} times in {steps} steps; "
    "with {lower:.3g} they do not",
    "用程序的学习率 {rate:.3g}，梯度在 {steps} 步内增长 {times:.3g} 倍；用 {lower:.3g} 则不增长",
)
GOES_ON = Text(
    "grows {times:.3g} times in {steps} steps, with lower rates too",
    "在 {steps} 步内增长 {times:.3g} 倍，降低学习率也一样",
)
NO_RISE = Text("no rise from weights of the usual size", "从正常大小的权重出发没有上升")
FACTORS = (0.1, 0.01, 1e-3, 1e-5)


@dataclass(frozen=True)
class Rates:
    """`lower`: the first rate that was tried and did not rise, or None."""

    rise: Rise
    lower: float | None = None


def applies(case: Case) -> bool:
    return can_train(case)


def run(case: Case) -> Outcome:
    rise = own_rise(case)
    if rise is None:
        return Outcome(None, "")
    if rise.times < RISEN:
        return Outcome(None, NO_RISE.say())
    rate = rate_of(rise.optimizer)
    for factor in FACTORS:
        if stays(case, rise, How(factor)):
            lower = rate * factor
            text = STOPS.say(rate=rate, times=rise.times, steps=rise.steps, lower=lower)
            return Outcome(True, text, Rates(rise, lower))
    return Outcome(False, GOES_ON.say(times=rise.times, steps=rise.steps), Rates(rise))
