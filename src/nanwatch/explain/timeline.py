"""What the recorded steps say beside the diagnosis: layers that learn nothing, a loss scale that falls.

None of these makes a NaN by itself; each is worth knowing when there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nanwatch.explain.text import Text
from nanwatch.records import StepFacts

FEWEST = 3
"""Audited steps in which a layer must have learned nothing."""
MOST_NAMED = 4

DEAD = Text(
    "No gradient reached {names} in the last {count} audited steps (since step {step}): dead units, or a "
    "layer that the loss does not depend on.",
    "最近 {count} 个被审计的步骤（自第 {step} 步起）中，{names} 的梯度全为零：神经元已失活，"
    "或损失与该层无关。",
)
VANISHING = Text(
    "The gradients of {names} were next to nothing beside those of other layers in the last {count} audited "
    "steps (since step {step}): vanishing gradients.",
    "最近 {count} 个被审计的步骤（自第 {step} 步起）中，{names} 的梯度远小于其他层：梯度消失。",
)
SCALE = Text(
    "The loss scale fell {count} times in a row, up to step {step}: the GradScaler skipped each of these "
    "steps.",
    "到第 {step} 步为止，损失缩放连续下降了 {count} 次：GradScaler 跳过了其中每一步。",
)


def sentences(history: Sequence[StepFacts]) -> Iterator[str]:
    for key, text in (("dead", DEAD), ("vanishing", VANISHING)):
        audited = [f for f in history if "layers" in f.facts]
        names = set(audited[-1].facts.get(key, ())) if audited else set()
        since = len(audited)
        while since and names & set(audited[since - 1].facts.get(key, ())):
            since -= 1
            names &= set(audited[since].facts.get(key, ()))
        if len(audited) - since >= FEWEST:
            which = ", ".join(sorted(names)[:MOST_NAMED])
            yield text.say(names=which, count=len(audited) - since, step=audited[since].step)
    falls = [f for f in history if "scale_fell" in f.facts]
    if falls:
        worst = max(falls, key=lambda f: f.facts["scale_fell"])
        yield SCALE.say(count=worst.facts["scale_fell"], step=worst.step)
