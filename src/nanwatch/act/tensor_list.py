"""Bad tensors in a sentence: the first few by name, with what is in them."""

from __future__ import annotations

from collections.abc import Sequence

from nanwatch.messages import say
from nanwatch.records import Numbers

NAMED = 3
"""So many are named, the others are counted."""


def listed(bad: Sequence[Numbers]) -> str:
    first = ", ".join(
        say("act.tensor", name=n.name, nan=n.nan, posinf=n.posinf, neginf=n.neginf, count=n.count)
        for n in bad[:NAMED]
    )
    more = len(bad) - NAMED
    return first if more <= 0 else say("act.more", tensors=first, more=more)
