"""The report that `--checklist` adds: every answer with its evidence, in plain lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nanwatch.records import Cause, Check, Incident

MARKS = {"bad": "✗", "fine": "✓", "open": "?"}
Say = Callable[..., str]


def report_lines(incident: Incident, say: Say) -> Iterator[str]:
    if not incident.checklist:
        yield say("screen.no_checklist")
        return
    for title, checks in (
        ("report.checklist", incident.checklist),
        ("report.debugging", incident.debugging),
    ):
        yield say(title)
        yield from (_check(each) for each in checks)
        yield ""
    yield say("report.causes")
    yield from _causes(incident, say)
    yield ""
    yield say("report.remedies")
    for number, remedy in enumerate(incident.remedies, 1):
        sentence = "screen.remedy.verified" if remedy.verified else "screen.remedy.untried"
        yield f"  {number}. " + say(sentence, text=remedy.text)
    if not incident.remedies:
        yield f"  {say('report.none')}"
    if incident.experiments:
        yield ""
        yield say("report.experiments")
        yield from (f"  {each.name}: {each.outcome}" for each in incident.experiments)


def _check(check: Check) -> str:
    return f"  {MARKS.get(check.state, '?')} {check.question} {check.answer}"


def _causes(incident: Incident, say: Say) -> Iterator[str]:
    named = [c for c in (incident.cause, *incident.others) if c.id != "unknown"]
    for number, cause in enumerate(named, 1):
        certainty = say(f"screen.certainty.{cause.certainty}")
        yield f"  {number}. " + say("screen.cause_why", id=cause.id, certainty=certainty, why=cause.why)
        yield from (f"     - {fact}" for fact in cause.evidence)
    if not named:
        yield f"  {say('report.none')}"
    yield from _ruled_out(incident.cause, say)


def _ruled_out(cause: Cause, say: Say) -> Iterator[str]:
    for each in cause.ruled_out:
        yield f"  {say('report.ruled_out', what=each)}"
