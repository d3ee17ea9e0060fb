"""The last recorded step trained on with AdamW in the place of the program's optimizer."""

from __future__ import annotations

import torch

from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.text import Text
from nanwatch.explain.training_on import How, can_train, diverging_optimizer, rate_of, stays

NAME = "adamw"
TITLE = Text("training on from here with AdamW", "改用 AdamW 从这里继续训练")
STOPS = Text("with AdamW at {rate:.3g} there is no rise", "用 AdamW（学习率 {rate:.3g}）不再上升")
GOES_ON = Text("it rises with AdamW too", "用 AdamW 仍然上升")
USUAL_RATE = 1e-3


def applies(case: Case) -> bool:
    if not can_train(case) or case.outcome("lower-rate").value is None:
        return False
    return not isinstance(diverging_optimizer(case), torch.optim.AdamW)


def run(case: Case) -> Outcome:
    """`value`: the rate."""
    rise = case.outcome("lower-rate").value.rise
    rate = min(rate_of(rise.optimizer), USUAL_RATE)
    if stays(case, rise, How(adamw=rate)):
        return Outcome(True, STOPS.say(rate=rate), rate)
    return Outcome(False, GOES_ON.say())
