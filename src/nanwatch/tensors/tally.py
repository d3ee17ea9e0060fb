"""The tally of some values: counts of the bad, extremes and sums of the good. Tallies add up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple


class Tally(NamedTuple):
    """`lo` and `hi` are +inf and -inf, the sums 0, when no value is finite."""

    nan: float = 0.0
    posinf: float = 0.0
    neginf: float = 0.0
    lo: float = math.inf
    hi: float = -math.inf
    sum: float = 0.0
    sumsq: float = 0.0

    @property
    def bad(self) -> int:
        return int(self.nan + self.posinf + self.neginf)

    @property
    def sums_are_lost(self) -> bool:
        """Whether a sum overflowed, or the squares vanished, so that it must be reckoned again, scaled."""
        if self.lo > self.hi:
            return False
        vanished = self.sumsq < 1e-290 and (self.lo != 0.0 or self.hi != 0.0)
        return vanished or not (math.isfinite(self.sum) and math.isfinite(self.sumsq))

    def times(self, copies: int) -> Tally:
        """The tally of these values, each occurring `copies` times."""
        if copies == 1:
            return self
        counts = (self.nan * copies, self.posinf * copies, self.neginf * copies)
        return Tally(*counts, self.lo, self.hi, self.sum * copies, self.sumsq * copies)


def added(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for part in tallies:
        total = Tally(
            total.nan + part.nan,
            total.posinf + part.posinf,
            total.neginf + part.neginf,
            min(total.lo, part.lo),
            max(total.hi, part.hi),
            total.sum + part.sum,
            total.sumsq + part.sumsq,
        )
    return total
