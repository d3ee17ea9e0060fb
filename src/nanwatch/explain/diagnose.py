"""Asks every cause, ranks the answers, tries the remedies of the first."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from nanwatch.explain.case import Case
from nanwatch.explain.causes import CAUSES
from nanwatch.explain.claim import CERTAINTIES, Against, Claim, Place
from nanwatch.explain.text import Text
from nanwatch.records import Cause, Experiment, Remedy

MOST_OTHERS = 4
NONE_SHOWN = Text(
    "None of the causes on the list could be shown.",
    "未能证明列表中的任何一种原因。",
)


@dataclass(frozen=True)
class Diagnosis:
    cause: Cause
    experiments: tuple[Experiment, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    others: tuple[Cause, ...] = ()
    """Causes that are also possible, the likeliest first."""
    place: Place | None = None
    """Where it went wrong, if the cause knows better than the trace."""


def diagnose(case: Case) -> Diagnosis:
    claims: list[tuple[str, ModuleType, Claim]] = []
    ruled_out: list[str] = []
    for identity, cause in _concerned(case).items():
        answer = _asked(cause, case)
        if isinstance(answer, Claim):
            claims.append((identity, cause, answer))
        elif isinstance(answer, Against):
            ruled_out.append(f"{identity}: {answer.why}")
    claims.sort(key=lambda c: (CERTAINTIES.index(c[2].certainty), -c[2].weight))
    if not claims:
        unknown = Cause(why=NONE_SHOWN.say(), ruled_out=tuple(ruled_out))
        return Diagnosis(unknown, tuple(case.experiments))
    identity, cause, claim = claims[0]
    remedies = _remedies(cause, case)
    named = Cause(identity, claim.certainty, claim.why, claim.evidence, tuple(ruled_out))
    others = tuple(Cause(i, c.certainty, c.why, c.evidence) for i, _, c in claims[1 : 1 + MOST_OTHERS])
    return Diagnosis(named, tuple(case.experiments), remedies, others, claim.place)


def _concerned(case: Case) -> dict[str, ModuleType]:
    """Where no value turned bad, because memory changed or an index ended the program, there is one cause to
    ask."""
    if case.trouble.seen_in == "memory":
        return {"corrupted-memory": CAUSES["corrupted-memory"]}
    if case.located.out_of_range is None:
        return CAUSES
    return {"index-out-of-range": CAUSES["index-out-of-range"]}


def _asked(cause: ModuleType, case: Case) -> Claim | Against | None:
    """A cause that fails while it is asked has nothing to say; the others have."""
    try:
        answer: Claim | Against | None = cause.weigh(case)
    except Exception:
        return None
    return answer


def _remedies(cause: ModuleType, case: Case) -> tuple[Remedy, ...]:
    try:
        return tuple(cause.remedies(case))
    except Exception:
        return ()
