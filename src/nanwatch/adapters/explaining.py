"""From the place of a bad value to its cause: the diagnosis of an incident, within its budget of time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nanwatch.messages import say
from nanwatch.records import Incident, StepFacts
from nanwatch.replay.located import Located, birth_at
from nanwatch.show import terminal
from nanwatch.signals import let_through
from nanwatch.watching.shield import describe
from nanwatch.watching.trouble import Trouble
from nanwatch.watching.watcher import Watcher

if TYPE_CHECKING:
    from nanwatch.explain.claim import Place

STEPS_TO_EXPLAIN = 20
LEAST_EXPLAIN_SECONDS = 10.0
"""Looking for the cause may take as long as this many steps, or, where steps are short, this many seconds."""


def explained(
    incident: Incident,
    trouble: Trouble,
    located: Located,
    watcher: Watcher,
    history: Sequence[StepFacts],
    with_report: bool,
) -> Incident:
    """The incident with its diagnosis. Without one, if nanwatch fails at it: the place is known all the
    same."""
    from nanwatch.explain.alone import Alone
    from nanwatch.explain.case import Budget, Case
    from nanwatch.explain.checklist import checklist
    from nanwatch.explain.debugging import debugging
    from nanwatch.explain.diagnose import diagnose
    from nanwatch.explain.timeline import sentences

    began = time.perf_counter()
    took = [facts.seconds for facts in history if facts.seconds is not None]
    step = sorted(took)[len(took) // 2] if took else 0.0
    budget = Budget(max(LEAST_EXPLAIN_SECONDS, STEPS_TO_EXPLAIN * step))
    try:
        with Alone() if watcher.lockstep.groups else contextlib.nullcontext():
            case = Case(trouble, located, watcher.calls, history, budget, terminal.progress)
            found = diagnose(case)
            steps = debugging(case) if with_report else ()
            points = checklist(case, found.cause) if with_report else ()
        notes = tuple(sentences(history))
    except Exception as error:
        let_through(error)
        note = say("watch.not_explained", error=describe(error))
        return replace(incident, notes=(*incident.notes, note))
    finally:
        terminal.progress("")
    return replace(
        incident if found.place is None else _placed(incident, found.place),
        cause=found.cause,
        experiments=tuple(case.experiments),
        remedies=found.remedies,
        others=found.others,
        checklist=points,
        debugging=steps,
        notes=(*incident.notes, *notes),
        explained_in_steps=round((time.perf_counter() - began) / step, 1) if step else None,
    )


def _placed(incident: Incident, place: Place) -> Incident:
    """No op made the value: it was there because of what was done, or not done, at this place."""
    module = "" if place.phase == "forward" else None
    birth = birth_at(place.stack, None, module)
    birth = replace(birth, outputs=incident.birth.outputs, samples=incident.birth.samples)
    return replace(incident, birth=birth, phase=place.phase)
