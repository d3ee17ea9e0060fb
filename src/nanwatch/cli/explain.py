"""`nanwatch explain`: what a cause means, or what was found out about an incident.

nanwatch explain                      the closed list of causes
nanwatch explain fully-masked-row     the page of one
nanwatch explain nanwatch-runs/…      the last incident of a run folder, again
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path

from nanwatch.errors import NanwatchError
from nanwatch.messages import chosen_language, say, say_in
from nanwatch.records import Incident, from_json

HELP = """usage: nanwatch explain
       nanwatch explain CAUSE
       nanwatch explain [--checklist] FOLDER

Without anything: the list of causes. With the id of one: what it means, what proves it, what helps.
With a run folder, an incident's folder or an incident.json: the incident's screen again.
  --checklist   also the report with the checklist, if the run was started with it
  --markdown    the pages of all causes, as docs/causes.md has them"""


def main(arguments: list[str]) -> int:
    if any(a in ("-h", "--help") for a in arguments):
        print(HELP)
        return 0
    if arguments == ["--markdown"]:
        print(all_pages(chosen_language()), end="")
        return 0
    with_checklist = "--checklist" in arguments
    rest = [a for a in arguments if a != "--checklist"]
    unknown = next((a for a in rest if a.startswith("-")), None)
    if unknown is not None:
        raise NanwatchError(say("cli.explain.unknown_option", option=unknown))
    if len(rest) > 1:
        raise NanwatchError(say("cli.explain.one_at_a_time", first=rest[0], other=rest[1]))
    if not rest:
        print(list_of_causes())
        return 0
    print(page(rest[0]) if _is_cause(rest[0]) else incident_screen(rest[0], with_checklist))
    return 0


def _is_cause(word: str) -> bool:
    from nanwatch.explain.causes import IDS

    return word in IDS


def list_of_causes() -> str:
    from nanwatch.explain.causes import CAUSES

    language = chosen_language()
    return "\n".join(f"{i:22} {cause.PAGE.title.in_language(language)}" for i, cause in CAUSES.items())


def page(identity: str, language: str | None = None) -> str:
    """The page of one cause, as text."""
    from nanwatch.explain.causes import CAUSES

    language = language or chosen_language()
    found = CAUSES[identity].PAGE
    proved, helps = say_in(language, "page.proof"), say_in(language, "page.cures")
    return "\n\n".join(
        [
            f"{identity}: {found.title.in_language(language)}",
            found.meaning.in_language(language),
            f"{proved} {found.proof.in_language(language)}",
            f"{helps} {found.cures.in_language(language)}",
        ]
    )


def all_pages(language: str) -> str:
    """The documentation of the causes, as Markdown."""
    from nanwatch.explain.causes import CAUSES

    parts = [f"# {say_in(language, 'page.causes')}", say_in(language, "page.made_by")]
    for identity, cause in CAUSES.items():
        found = cause.PAGE
        parts += [
            f"## {identity}",
            f"**{found.title.in_language(language)}**",
            found.meaning.in_language(language),
            f"*{say_in(language, 'page.proof')}* {found.proof.in_language(language)}",
            f"*{say_in(language, 'page.cures')}* {found.cures.in_language(language)}",
        ]
        if found.examples:
            shown = ", ".join(f"[{name}](../tests/cases/programs/{name}.py)" for name in found.examples)
            parts.append(f"*{say_in(language, 'page.examples')}* {shown}")
    return "\n\n".join(parts) + "\n"


def incident_screen(where: str, with_checklist: bool) -> str:
    from nanwatch.show import terminal

    path = _incident_file(where)
    try:
        incident = from_json(Incident, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise NanwatchError(say("cli.explain.unreadable", path=path, why=error)) from None
    text = terminal.render(incident, str(path.parent))
    return text + terminal.report(incident) if with_checklist else text


def _incident_file(where: str) -> Path:
    path = Path(where)
    if path.is_file():
        return path
    for found in (path / "incident.json", *sorted(path.glob("incidents/*/incident.json"), reverse=True)):
        if found.is_file():
            return found
    if (path / "run.json").is_file():
        raise NanwatchError(say("cli.explain.no_incident", path=where))
    if path.is_dir():
        runs = sorted(path.glob("*/run.json"), key=lambda run: run.stat().st_mtime)
        sentence = "cli.explain.runs_inside" if runs else "cli.explain.no_run"
        raise NanwatchError(say(sentence, path=where, latest=runs[-1].parent if runs else ""))
    near = ", ".join(_near(where))
    sentence = "cli.explain.misspelt" if near else "cli.explain.nothing_there"
    raise NanwatchError(say(sentence, path=where, near=near))


def _near(word: str) -> list[str]:
    from nanwatch.explain.causes import IDS

    return difflib.get_close_matches(word, IDS, n=3, cutoff=0.6)
