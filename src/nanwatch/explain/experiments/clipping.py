"""The last recorded step trained on with the program's own rate and clipped gradients."""

from __future__ import annotations

from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.text import Text
from nanwatch.explain.training_on import How, can_train, stays

NAME = "clipping"
TITLE = Text("training on from here with clipped gradients", "裁剪梯度后从这里继续训练")
STOPS = Text("with gradients clipped to {norm:g} there is no rise", "梯度裁剪到 {norm:g} 时不再上升")
GOES_ON = Text("it rises with clipped gradients too", "裁剪梯度后仍然上升")
NORMS = (1.0, 0.5, 0.1)


def applies(case: Case) -> bool:
    return can_train(case) and case.outcome("lower-rate").value is not None


def run(case: Case) -> Outcome:
    """`value`: the norm."""
    rise = case.outcome("lower-rate").value.rise
    for norm in NORMS:
        if stays(case, rise, How(clip=norm)):
            return Outcome(True, STOPS.say(norm=norm), norm)
    return Outcome(False, GOES_ON.say())
