"""What to do about a bad step."""

from __future__ import annotations

from nanwatch.errors import NanwatchError
from nanwatch.messages import say

POLICIES = ("raise", "skip", "observe")


def check_policy(policy: str) -> str:
    if policy not in POLICIES:
        raise NanwatchError(
            say("cli.unknown_policy", policy=policy, choices=", ".join(POLICIES), example=POLICIES[0])
        )
    return policy


def action_of(policy: str, can_skip: bool) -> str:
    """The action as `incident.json` names it. What cannot be skipped any more is observed."""
    if policy == "raise":
        return "raised"
    return "skipped" if policy == "skip" and can_skip else "observed"
