"""What a cause has to say about a bad step."""

from __future__ import annotations

from dataclasses import dataclass, field

from nanwatch.explain.text import Text
from nanwatch.watching.stack import Stack

CERTAINTIES = ("proved", "likely", "possible")


@dataclass(frozen=True)
class Claim:
    """`certainty`: "proved" only when an experiment or a hard fact decides; "likely" when all that is known
    fits and nothing else explains it as well; "possible" when it fits and was not tested."""

    certainty: str
    why: str
    evidence: tuple[str, ...] = ()
    weight: float = 0.0
    """Among claims of the same certainty the heavier is on top: a cause that explains the value of the
    operand (an empty mask) outweighs one that only names what the op did with it (a division by zero)."""
    place: Place | None = None
    """Where it went wrong, when that is not where the bad value was first seen."""


@dataclass(frozen=True)
class Place:
    stack: Stack
    phase: str


@dataclass(frozen=True)
class Against:
    """The cause was considered and is ruled out."""

    why: str


@dataclass(frozen=True)
class Page:
    """What `nanwatch explain ID` prints and the docs are made of."""

    title: Text
    meaning: Text
    proof: Text
    """What decides."""
    cures: Text
    examples: tuple[str, ...] = field(default_factory=tuple)
    """Names of programs in tests/cases/programs that show it."""
