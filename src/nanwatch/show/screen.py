"""The sections of the terminal screen, drawn with rich. Everything shown is in the record already."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from nanwatch.records import Frame, Hidden, Hop, Incident, Numbers, Remedy
from nanwatch.show import folding
from nanwatch.show.folding import Say
from nanwatch.show.printable import without_controls
from nanwatch.show.source_lines import lines_around

_KINDS = {"nan": "NaN", "inf": "Inf"}


@dataclass(frozen=True)
class Limits:
    """How many lines each section may take."""

    context: int
    tensors: int
    hops: int
    hidden: int
    frames: int
    remedies: int
    notes: int
    evidence: int
    letters: int
    """Of a free sentence: a cause, a remedy, a note."""


LIMITS = (
    Limits(context=2, tensors=8, hops=7, hidden=3, frames=8, remedies=3, notes=4, evidence=3, letters=600),
    Limits(context=1, tensors=6, hops=6, hidden=2, frames=5, remedies=2, notes=2, evidence=1, letters=300),
    Limits(context=0, tensors=4, hops=4, hidden=1, frames=3, remedies=1, notes=1, evidence=0, letters=120),
)
"""From roomy to tight: the first that fits on a screen is used."""


@dataclass(frozen=True)
class Screen:
    """A rich renderable of one incident."""

    incident: Incident
    folder: str | None
    say: Say
    limits: Limits
    world_size: int = 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Rule(Text(self.say("screen.title"), style="bold"), style="red", align="left")
        yield headline(self)
        if not of_traced_block(self.incident):
            yield action_line(self)
        yield Text()
        yield from source(self)
        yield facts_grid(facts_of_place(self))
        if self.incident.birth.inputs or self.incident.birth.outputs:
            yield Text()
            yield numbers_table(self, gap=2 if options.max_width >= 95 else 1)
        story = list(facts_of_story(self))
        if story:
            yield Text()
            yield facts_grid(story)
        yield Rule(style="red")


Fact = tuple[str, RenderableType]


def plain(text: str, style: str = "") -> Text:
    """One line, cut with an ellipsis where it is too long."""
    return Text(without_controls(text), style=style, no_wrap=True, overflow="ellipsis")


def wrapped(text: str, style: str = "") -> Text:
    return Text(without_controls(text), style=style, overflow="fold")


def shortened(text: str, screen: Screen) -> str:
    letters = screen.limits.letters
    return text if len(text) <= letters else text[: letters - 1].rstrip() + "…"


def labelled(label: str, lines: Iterable[Text]) -> Iterator[Fact]:
    """The label before the first line only."""
    for number, line in enumerate(lines):
        yield (label if number == 0 else "", line)


def facts_grid(facts: Iterable[Fact]) -> Table:
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(style="cyan", no_wrap=True, min_width=7)
    grid.add_column(ratio=1)
    for label, value in facts:
        grid.add_row(label, value)
    return grid


def of_traced_block(incident: Incident) -> bool:
    """Whether `nanwatch.trace()` found it, which knows no steps and does nothing about them."""
    return incident.seen_in == "trace" and incident.step < 0


def headline(screen: Screen) -> Text:
    incident, say = screen.incident, screen.say
    kind = _KINDS.get(incident.kind, incident.kind)
    if of_traced_block(incident):
        how = "came_in" if incident.birth.op is None else "born"
        return wrapped(say(f"screen.traced.{how}", kind=kind), "bold red")
    when = say("screen.before_first_step") if incident.step < 0 else say("screen.step", step=incident.step)
    nothing_born = {"index": "screen.out_of_range", "bit": "screen.bit_turned"}.get(incident.kind)
    born = say(nothing_born) if nothing_born else say(f"screen.born.{incident.phase}", kind=kind)
    parts = [born, when]
    if screen.world_size > 1 or incident.rank > 0:
        parts.append(say("screen.rank", rank=incident.rank))
    return wrapped(" · ".join(parts), "bold red")


def action_line(screen: Screen) -> Text:
    return wrapped(screen.say(f"screen.action.{_action(screen.incident)}"))


def _action(incident: Incident) -> str:
    """Weights are called untouched only where a step was stopped before the optimizer ran."""
    if incident.action != "raised":
        return incident.action
    if incident.phase == "weights":
        return "raised_weights"
    if incident.phase == "optimizer" or incident.seen_in not in ("", "loss", "gradients"):
        return "raised_here"
    return "raised"


def source(screen: Screen) -> Iterator[RenderableType]:
    birth, say = screen.incident.birth, screen.say
    if birth.file is None:
        yield wrapped(say("screen.place_unknown"), "italic")
        yield Text()
        return
    line = "" if birth.line is None else f":{birth.line}"
    title = plain(f"{folding.shown_path(birth.file)}{line}", "bold")
    if screen.incident.phase == "backward":
        title.append(f"  ({say('screen.derivative')})", style="not bold italic")
    yield title
    lines = lines_around(birth, screen.limits.context)
    digits = len(str(lines[-1][0])) if lines else 0
    for number, code in lines:
        here = number == birth.line
        text = plain(f"{'❱' if here else ' '} {number:>{digits}} │ {code}", "" if here else "dim")
        text.stylize("bold", 0 if here else len(text))
        yield text
    yield Text()


def facts_of_place(screen: Screen) -> Iterator[Fact]:
    birth, say = screen.incident.birth, screen.say
    op = say("screen.op_unknown") if birth.op is None else birth.op
    if birth.arguments:
        op += f"  {birth.arguments}"
    if birth.node:
        op += f"  ({birth.node})"
    yield say("screen.label.op"), plain(op, "bold")
    if birth.module is not None:
        yield say("screen.label.module"), plain(birth.within or birth.module or say("screen.module_root"))
    elif birth.op is not None:
        yield say("screen.label.module"), plain(say("screen.module_none"))
    if of_traced_block(screen.incident):
        return
    seen = _known(screen, "screen.seen", screen.incident.seen_in)
    by = _known(screen, "screen.by", screen.incident.located_by)
    if seen and by:
        yield say("screen.label.seen"), plain(say("screen.located", seen=seen, by=by))
    elif seen or by:
        yield say("screen.label.seen"), plain(seen or by)


def _known(screen: Screen, group: str, word: str) -> str:
    """The word in the reader's language; one that a newer nanwatch wrote is shown as it is."""
    try:
        return screen.say(f"{group}.{word}") if word else ""
    except KeyError:
        return word


def numbers_table(screen: Screen, gap: int) -> Table:
    """Names and shapes give way when it is narrow, the numbers never."""
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="cyan", pad_edge=False)
    for column in ("name", "shape"):
        table.add_column(plain(screen.say(f"screen.column.{column}")), max_width=24)
    table.add_column("dtype", no_wrap=True)
    for column in ("nan", "posinf", "neginf", "min", "max", "mean"):
        table.add_column(screen.say(f"screen.column.{column}"), justify="right", no_wrap=True)
    birth, limit = screen.incident.birth, screen.limits.tensors
    inputs = max(limit - len(birth.outputs), limit - limit // 2)
    outputs = max(limit - len(birth.inputs), limit // 2)
    _add_tensors(table, screen, "screen.input", birth.inputs, inputs)
    _add_tensors(table, screen, "screen.output", birth.outputs, outputs)
    return table


def _add_tensors(table: Table, screen: Screen, label: str, tensors: tuple[Numbers, ...], limit: int) -> None:
    kept, left_out = folding.worst_first(tensors, limit)
    for position, numbers in kept:
        name = screen.say(label, name=numbers.name or str(position))
        table.add_row(plain(name), *_cells(numbers, screen.say))
    if left_out:
        table.add_row(plain(screen.say("screen.more", count=left_out), "dim"))


def _cells(numbers: Numbers, say: Say) -> list[Text]:
    counts = [
        plain(folding.shown_count(count, numbers.count, say), "bold red" if count else "dim")
        for count in (numbers.nan, numbers.posinf, numbers.neginf)
    ]
    extremes = [plain(folding.shown_number(v)) for v in (numbers.min, numbers.max, numbers.mean)]
    shape = plain(folding.shown_shape(numbers.shape, say))
    return [shape, plain(numbers.dtype.removeprefix("torch.")), *counts, *extremes]


def facts_of_story(screen: Screen) -> Iterator[Fact]:
    incident, say, limits = screen.incident, screen.say, screen.limits
    yield from rows(screen)
    yield from labelled(say("screen.label.travel"), travel(incident.travel, screen))
    yield from labelled(say("screen.label.hidden"), hidden(incident.hidden, screen))
    yield from labelled(say("screen.label.stack"), stack(screen))
    yield from labelled(say("screen.label.cause"), cause(screen))
    remedies = (line for r in incident.remedies[: limits.remedies] for line in remedy(r, screen))
    yield from labelled(say("screen.label.remedy"), remedies)
    yield from labelled(say("screen.label.note"), notes(screen))
    yield from labelled(say("screen.label.more"), more(screen))


def rows(screen: Screen) -> Iterator[Fact]:
    samples = screen.incident.birth.samples
    if not samples:
        return
    kept = samples if len(samples) <= 12 else samples[:10]
    text = ", ".join(str(n) for n in kept)
    if len(kept) < len(samples):
        text += " " + screen.say("screen.more_rows", count=len(samples) - len(kept))
    yield screen.say("screen.label.rows"), wrapped(screen.say("screen.rows", rows=text))


def travel(hops: tuple[Hop, ...], screen: Screen) -> Iterator[Text]:
    first, left_out, last = folding.fold_middle(hops, screen.limits.hops)
    for hop in first:
        yield plain(hop_text(hop, screen))
    if left_out:
        yield plain(screen.say("screen.more", count=left_out), "dim")
    for hop in last:
        yield plain(hop_text(hop, screen))


def hop_text(hop: Hop, screen: Screen) -> str:
    parts = [folding.short_op(hop.op), hop_place(hop), hop.module or ""]
    parts.append(_known(screen, "screen.phase", hop.phase))
    if hop.count:
        parts.append(screen.say("screen.bad", bad=hop.bad, count=hop.count))
    return "  ".join(part for part in parts if part)


def hop_place(hop: Hop) -> str:
    if hop.file is None:
        return ""
    name = os.path.basename(hop.file)
    return name if hop.line is None else f"{name}:{hop.line}"


def hidden(births: tuple[Hidden, ...], screen: Screen) -> Iterator[Text]:
    first, left_out, last = folding.fold_middle(births, screen.limits.hidden)
    for birth in (*first, *last):
        born, by = (
            " ".join(part for part in (folding.short_op(hop.op), hop_place(hop)) if part)
            for hop in (birth.born, birth.hidden_by)
        )
        sentence = "screen.hidden_harmful" if birth.harmful else "screen.hidden"
        text = screen.say(sentence, born=born, by=by)
        yield plain(f"{text}  {birth.why}" if birth.why else text)
    if left_out:
        yield plain(screen.say("screen.more", count=left_out), "dim")


def stack(screen: Screen) -> Iterator[Text]:
    """Outermost first, as Python prints it; the outer part goes when there is too much."""
    left_out, entries = folding.fit_stack(screen.incident.birth.stack, screen.limits.frames)
    if left_out:
        yield plain(screen.say("screen.more_frames", count=left_out), "dim")
    for entry in entries:
        yield frame_text(entry, screen)


def frame_text(entry: Frame | tuple[str, int], screen: Screen) -> Text:
    if not isinstance(entry, Frame):
        package, count = entry
        sentence = "screen.library_frame" if count == 1 else "screen.library_frames"
        return plain(screen.say(sentence, count=count, package=package), "dim")
    text = plain(f"{folding.shown_path(entry.file)}:{entry.line} {entry.function}")
    if entry.code:
        text.append("  " + without_controls(entry.code.strip()), style="dim")
    return text


def cause(screen: Screen) -> Iterator[Text]:
    found, say = screen.incident.cause, screen.say
    if found.id != "unknown":
        certainty = _known(screen, "screen.certainty", found.certainty)
        sentence = "screen.cause_why" if found.why else "screen.cause"
        why = shortened(found.why, screen)
        yield wrapped(say(sentence, id=found.id, certainty=certainty, why=why), "bold")
        for line in found.evidence[: screen.limits.evidence]:
            yield plain(line)
    elif found.why:
        yield wrapped(say("screen.cause_unknown", why=found.why), "bold")
        if found.ruled_out:
            ids = (each.partition(":")[0] for each in found.ruled_out)
            yield plain(say("screen.ruled_out", causes=", ".join(ids)))


def remedy(found: Remedy, screen: Screen) -> Iterator[Text]:
    sentence = {True: "verified", False: "failed", None: "untried"}[found.verified]
    yield wrapped(screen.say(f"screen.remedy.{sentence}", text=shortened(found.text, screen)))
    if found.edit and screen.limits.evidence:
        for line in found.edit.splitlines()[2:]:
            if line.startswith(("-", "+")):
                yield plain(without_controls(line), "green" if line.startswith("+") else "red")


def notes(screen: Screen) -> Iterator[Text]:
    first, left_out, last = folding.fold_middle(screen.incident.notes, screen.limits.notes)
    for note in (*first, *last):
        yield wrapped(shortened(note, screen))
    if left_out:
        yield plain(screen.say("screen.more", count=left_out), "dim")


def more(screen: Screen) -> Iterator[Text]:
    """Whole paths, so that they can be copied; repro.py only where there is one."""
    if screen.folder is None:
        return
    folder = folding.shown_path(screen.folder)
    yield wrapped(os.path.join(folder, "incident.json"))
    if os.path.exists(os.path.join(screen.folder, "repro.py")):
        yield wrapped(f"python {_quoted(os.path.join(folder, 'repro.py'))}")


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path
