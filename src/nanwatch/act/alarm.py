"""What an early warning says: the numbers, the steps that are left, and what would stop it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from nanwatch.messages import say

OVERFLOW = "overflow-ahead"
SPIKE = "spike"
HEADROOM = "headroom"
SCALE = "scale-falls"
ROUNDING = 1e-6
"""A rate may be a tensor of float32."""


@dataclass(frozen=True)
class Alarm:
    """Said once per episode. `of`: what it was seen in: "loss", "grad_norm", "weights", "range" or
    "scale"."""

    id: str
    episode: int
    """Counted over the run, for all kinds together, from 1."""
    step: int
    of: str
    since: int
    """The step at which it began."""
    first: float
    """The value then, or the usual one."""
    last: float
    """The value now."""
    factor: float
    """By how much it is multiplied in a step."""
    steps_left: int | None = None
    layer: str | None = None
    """The parameter that grows most, or the module that is near its limit."""
    rate: float | None = None
    """A learning rate that would do."""
    clip: float | None = None
    """A norm to clip at: the usual one of this run."""

    @property
    def asks_for_a_lower_rate(self) -> bool:
        """An overflow that lies ahead does. It comes once per episode, so the rate is lowered once, too."""
        return self.id == OVERFLOW

    def sentence(self) -> str:
        """In the language of this process: what happens, how long there is, what to do."""
        what = say(
            f"early.{self.id}",
            step=self.step,
            what=say(f"early.of.{self.of}"),
            since=self.since,
            first=f"{self.first:.3g}",
            last=f"{self.last:.3g}",
            factor=f"{self.factor:.3g}",
            left=self.steps_left,
            layer=self.layer,
        )
        if self.layer is not None and self.of not in ("range", "scale"):
            what = say("early.with_layer", what=what, layer=self.layer)
        ways = self.advice()
        if ways:
            what = say("early.with_advice", what=what, ways=functools.reduce(_either, ways))
        return say("early.whole", what=what)

    def advice(self) -> list[str]:
        """What would stop it, with this run's numbers."""
        ways = []
        if self.of == "range":
            ways.append(say("early.do.float32", module=self.layer))
        if self.of == "scale":
            ways.append(say("early.do.scale"))
        if self.rate is not None:
            ways.append(say("early.do.rate", rate=f"{self.rate:.2g}"))
        if self.clip is not None:
            ways.append(say("early.do.clip", norm=f"{self.clip:.2g}"))
        return ways


def _either(first: str, second: str) -> str:
    return say("early.either", first=first, second=second)


def bounded_factor(rate: float, lowest: float, factor: float) -> float:
    """`factor`, or what brings `rate` down to `lowest`, or 1 where it is there already, but for rounding."""
    return 1.0 if rate <= lowest * (1 + ROUNDING) or rate <= 0 else max(factor, lowest / rate)
