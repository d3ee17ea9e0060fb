"""What helps. A remedy is a change of setting, a guard, a source edit or a way back; what can be tried on the
step that failed is tried, and only then called verified."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nanwatch.explain.remedies.repairs import REPAIRS
from nanwatch.explain.remedies.settings import SETTINGS, text_of
from nanwatch.explain.remedies.trial import tried
from nanwatch.explain.remedies.words import EDITS
from nanwatch.records import Remedy

if TYPE_CHECKING:
    from nanwatch.explain.case import Case


def offer(case: Case, *ids: str) -> list[Remedy]:
    """The remedies of these ids that fit the case, each tried where that can be done. Those that were tried
    and hold come first, then those that could not be tried, in the order of `ids`. What was tried and
    does not help is not offered."""
    made = [_edit(case, i) if i in REPAIRS else _setting(case, i) for i in ids]
    fitting = [remedy for remedy in made if remedy is not None and remedy.verified is not False]
    if any(remedy.verified for remedy in fitting) and not case.fails_again:
        fitting = [replace(remedy, verified=None) for remedy in fitting]
    fitting = [r for i, r in enumerate(fitting) if not any(r.edit and r.edit == e.edit for e in fitting[:i])]
    return sorted(fitting, key=lambda remedy: remedy.verified is not True)


def _edit(case: Case, identity: str) -> Remedy | None:
    repair = REPAIRS[identity](case)
    if repair is None:
        return None
    trial = tried(case, repair)
    return Remedy(identity, EDITS[identity].say(), trial.verified, trial.edit)


def _setting(case: Case, identity: str) -> Remedy | None:
    setting = SETTINGS[identity]
    if setting.fits is not None and not setting.fits(case):
        return None
    outcomes = [case.outcome(name).finite for name in setting.experiments]
    verified = True if True in outcomes else (False if False in outcomes else None)
    return Remedy(identity, text_of(case, setting), verified)
