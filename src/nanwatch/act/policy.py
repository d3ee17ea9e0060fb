"""What to do about a bad step: raise, skip, roll back, observe, or one after the other."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from nanwatch import arguments
from nanwatch.errors import NanwatchError
from nanwatch.messages import say

THOUSAND = 1000
ACTIONS = {"skip": "skipped", "rollback": "rolled-back", "zero": "zeroed", "observe": "observed"}
"""What is done -> how `incident.json` names it; "raise" is said by an exception."""


@dataclass(frozen=True)
class Policy:
    """Skip up to `skip_in_a_row` steps in a row and `skip_per_thousand` in any thousand; then go back to the
    last good state, up to `rollbacks` times, each time with the learning rate times `rate_factor`; only then
    raise.

        nanwatch.watch(policy=nanwatch.Policy(skip_in_a_row=3, skip_per_thousand=10, rollbacks=2,
                                              rate_factor=0.5))
    """

    skip_in_a_row: float = 0
    skip_per_thousand: float = math.inf
    rollbacks: int = 0
    rate_factor: float = 1.0
    observe: bool = False
    """Only report."""
    replace_by_zero: bool = False
    """What is not finite becomes 0 and the step is made. For debugging only: it hides the fault."""
    lower_rate_on_warning: bool = False
    """An early warning that an overflow lies ahead lowers the learning rate by `rate_factor`, or by half."""

    def __post_init__(self) -> None:
        for name in ("skip_in_a_row", "skip_per_thousand", "rollbacks"):
            arguments.number("nanwatch.Policy", name, getattr(self, name))
        arguments.positive_number("nanwatch.Policy", "rate_factor", self.rate_factor, most=1.0)
        for name in ("observe", "replace_by_zero", "lower_rate_on_warning"):
            arguments.yes_or_no("nanwatch.Policy", name, getattr(self, name))

    @property
    def holds_back(self) -> bool:
        """Whether updates are to be prevented without stopping the program."""
        return bool(self.skip_in_a_row or self.rollbacks)

    @property
    def in_the_watchers_words(self) -> str:
        """ "skip", "observe" or "raise": what the watcher must be ready for."""
        if self.holds_back:
            return "skip"
        return "observe" if self.observe or self.replace_by_zero else "raise"


NAMED = {
    "raise": Policy(),
    "skip": Policy(skip_in_a_row=math.inf),
    "rollback": Policy(rollbacks=3),
    "survive": Policy(3, 10, rollbacks=3, rate_factor=0.5, lower_rate_on_warning=True),
    "observe": Policy(observe=True),
    "zero": Policy(replace_by_zero=True),
}
POLICIES = tuple(NAMED)


def policy_of(given: str | Policy, **changes: Any) -> Policy:
    """The policy of this name, or the one that is given, with these settings instead of its own."""
    if isinstance(given, Policy):
        return replace(given, **changes) if changes else given
    if not isinstance(given, str) or given not in NAMED:
        choices = ", ".join(POLICIES)
        raise NanwatchError(say("cli.unknown_policy", policy=given, choices=choices, example=POLICIES[0]))
    return replace(NAMED[given], **changes)


class Decisions:
    """The policy at work. It counts steps alone, so that all ranks of a run decide the same."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.skipped = 0
        self.rolled_back = 0
        self.let_be = 0
        """Bad steps that were only told of, or made with 0 for what was bad."""
        self._in_a_row = 0
        self._last = -2
        self._recent: deque[int] = deque()

    def decide(self, step: int, can_skip: bool, can_roll_back: bool, damaged: bool = False) -> str:
        """ "skip", "rollback", "raise", "observe" or "zero". `can_skip`: the update has not been made yet.
        `damaged`: the weights themselves are bad, so that leaving this step out helps nothing."""
        policy = self.policy
        if policy.observe or policy.replace_by_zero:
            self.let_be += 1
            return "observe" if policy.observe else "zero"
        self._in_a_row = self._in_a_row + 1 if step <= self._last + 1 else 1
        self._last = step
        self._recent.append(step)
        while self._recent[0] <= step - THOUSAND:
            self._recent.popleft()
        within = self._in_a_row <= policy.skip_in_a_row and len(self._recent) <= policy.skip_per_thousand
        helps = not (damaged and policy.rollbacks)
        if can_skip and within and helps:
            self.skipped += 1
            return "skip"
        if can_roll_back and self.rolled_back < policy.rollbacks:
            self.rolled_back += 1
            self._in_a_row = 0
            self._recent.clear()
            return "rollback"
        if policy.skip_in_a_row == math.inf and policy.skip_per_thousand == math.inf:
            return "observe"  # the damage is done, and the policy is never to stop
        return "raise"


def action_of(decided: str) -> str:
    """As `incident.json` names it."""
    return ACTIONS.get(decided, "raised")
