"""One number of a run from step to step, as its log10: what is usual for it, and whether it rises.

What is usual (the middle, the spread, the noise from step to step) is learned from the last steps by medians,
so that single steps count little. It is brought up to date now and then; a step costs a few comparisons.
"""

from __future__ import annotations

import itertools
import math
from collections import deque

WINDOW = 64
REFRESH = 16
"""The usual values are learned anew after so many steps."""
CLIMB = 0.02
"""A step climbs when it is this much above all that came before it in the rise."""
DIP = 0.18
"""A rise may be interrupted by a step that is this much lower, besides the noise."""
STALL = 8
"""A rise is over when it has not climbed for so many steps."""
FEWEST_CLIMBS = 5
SLOPE_POINTS = (12, 6, 4)
SIGMA = 1.4826
"""From the median of the deviations to a standard deviation."""


class Curve:
    """`add` each step's value; then ask `rising` and `slope`."""

    def __init__(self, top: float = -math.inf) -> None:
        self.last = -math.inf
        self.count = 0
        self.top = top
        """The highest value before the present rise, since the run began."""
        self.before = top
        """The highest value before the last step."""
        self.usual: float | None = None
        """The middle of the last values, as they were before the present rise."""
        self.spread = 0.0
        self.noise = 0.0
        self.rise = 0
        """The number of the present rise: another one is another episode."""
        self.base = self.peak = -math.inf
        self.since = 0
        self.climbs = 0
        self.quiet = 0
        self.jump = 0.0
        """The largest part of the present rise that one single step made, above all that was before."""
        self._recent: deque[tuple[int, float]] = deque(maxlen=WINDOW)

    def add(self, step: int, value: float) -> None:
        self.count += 1
        self.before = self.highest
        self._recent.append((step, value))
        self.last = value
        if self.count == 1 or value <= self.base or value < self.peak - DIP - 3 * self.noise:
            self._begin(step, value)
        elif value > self.peak + CLIMB:
            self.climbs += 1
            self.quiet = 0
            self.jump = max(self.jump, value - max(self.peak, self.top))
            self.peak = value
        else:
            self.quiet += 1
            if self.quiet > STALL:
                self._begin(step, value)
        if self.count % REFRESH == 0 and self.climbs < FEWEST_CLIMBS:
            self._learn()

    def begin_anew(self, step: int) -> None:
        """Something else was changed (the rate): only what rises from here on counts."""
        if self.count:
            self._begin(step, self.last)

    def _begin(self, step: int, value: float) -> None:
        self.top = max(self.top, self.peak)
        self.rise += 1
        self.base = self.peak = value
        self.since = step
        self.climbs = self.quiet = 0
        self.jump = 0.0

    def _learn(self) -> None:
        values = [value for _, value in self._recent]
        self.usual = _middle(values)
        self.spread = SIGMA * _middle([abs(v - self.usual) for v in values])
        changes = [b - a for a, b in itertools.pairwise(values)]
        drift = _middle(changes)
        self.noise = SIGMA * _middle([abs(c - drift) for c in changes])

    def at(self, step: int) -> float:
        """Its value then; where that is forgotten, or was never known, that of the first step after it."""
        return next((value for when, value in self._recent if when >= step), self.last)

    @property
    def highest(self) -> float:
        return max(self.top, self.peak)

    @property
    def height(self) -> float:
        """How far the present rise has come."""
        return self.peak - self.base

    def rising(self, margin: float) -> bool:
        """Many steps, each above the ones before, to `margin` and more above all that the run has seen. One
        single jump is no rise, however high. Twice the margin while nothing is known of the noise."""
        margin = max(margin, 4 * self.spread) if self.usual is not None else 2 * margin
        above = self.peak - max(self.top, self.base)
        if self.climbs < 3 or above < margin or self.quiet > 2:
            return False
        if above >= 4:
            return self.jump <= 0.85 * above
        return self.climbs >= FEWEST_CLIMBS and self.jump <= 0.5 * above

    def keeps_pace(self) -> bool:
        """Whether it gains about as much now as it did before. What grows by a sum and not by a factor does
        not."""
        values = [value for step, value in self._recent if step >= self.since]
        third = len(values) // 3
        if not third:
            return False
        first, middle, last = values[:third], values[third:-third], values[-third:]
        return _middle(last) - _middle(middle) >= 0.6 * (_middle(middle) - _middle(first))

    def steady_slope(self) -> float:
        """What the present rise gains in a step: the middle gain over the last twelve values."""
        return _middle_gain(self._last_points())

    def slope(self) -> float:
        """The same, or more where the last six or four values say so: a rise that has just begun, or gathers
        speed, arrives earlier than its past tells."""
        points = self._last_points()
        return max(_middle_gain(points[-count:]) for count in SLOPE_POINTS)

    def _last_points(self) -> list[tuple[int, float]]:
        return [p for p in list(self._recent)[-SLOPE_POINTS[0] :] if p[0] >= self.since]


def _middle_gain(points: list[tuple[int, float]]) -> float:
    half = len(points) // 2
    if not half:
        return 0.0
    pairs = zip(points, points[half:], strict=False)
    gains = [
        (later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in pairs if later[0] > earlier[0]
    ]
    return _middle(gains) if gains else 0.0


def _middle(values: list[float]) -> float:
    if not values:
        return 0.0
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
