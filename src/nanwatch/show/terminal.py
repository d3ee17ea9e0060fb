"""One incident on one screen.

print(render(incident, "nanwatch-runs/…/incidents/0001"), file=sys.stderr)
"""

from __future__ import annotations

import functools
import io
import os
import shutil
import sys
from typing import TextIO

from nanwatch.messages import chosen_language, say_in
from nanwatch.records import Incident
from nanwatch.show.printable import has_line_drawing, in_encoding

SCREEN_LINES = 40


def render(
    incident: Incident,
    folder: str | None,
    width: int | None = None,
    color: bool | None = None,
    *,
    encoding: str | None = None,
    world_size: int = 1,
) -> str:
    """The incident as text for a terminal, at most about 40 lines at 100 columns.

    `folder` is the incident's own folder (`…/incidents/0001`), None when nothing could be written.
    What is not given is learned from stderr: its width, whether it takes colour, its encoding. The
    rank is shown when `world_size` or the rank itself tells of several.
    """
    from nanwatch.show.screen import LIMITS, Screen

    encoding = encoding or getattr(sys.stderr, "encoding", None) or "utf-8"
    say = functools.partial(say_in, chosen_language(encoding=encoding))
    columns = max(width or _columns(), 40)
    if not has_line_drawing(encoding):
        columns -= 2  # "… 3 more" becomes "... 3 more"
    text = ""
    for limits in LIMITS:
        screen = Screen(incident, folder, say, limits, world_size)
        text = _draw(screen, columns, takes_color(sys.stderr) if color is None else color)
        if text.count("\n") <= SCREEN_LINES:
            break
    return in_encoding(text, encoding)


def report(incident: Incident) -> str:
    """What `--checklist` adds to the screen: the checklist, the debugging steps, all causes that were weighed
    and all remedies, in order."""
    from nanwatch.show.report import report_lines

    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    lines = report_lines(incident, functools.partial(say_in, chosen_language(encoding=encoding)))
    return in_encoding("\n".join(lines) + "\n", encoding)


def takes_color(stream: TextIO | None) -> bool:
    """Whether colour codes do good: a terminal, and nobody asked for none (NO_COLOR, TERM=dumb)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def write(text: str, stream: TextIO | None = None) -> None:
    """Print `text`, by default to stderr; a stream that cannot encode it, or is closed, does not matter."""
    stream = sys.stderr if stream is None else stream
    if stream is None:
        return
    try:
        stream.write(in_encoding(text, getattr(stream, "encoding", None) or "utf-8"))
        stream.flush()
    except (OSError, ValueError):
        pass


def progress(text: str) -> None:
    """One line that the next one overwrites, on a terminal only; "" wipes it."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    shown = f"nanwatch: {text} …" if text else ""
    write("\r\x1b[2K" + shown[: _columns() - 1])


def _columns() -> int:
    """The width of the terminal, 100 where there is none (a log file), never more than 120."""
    return min(shutil.get_terminal_size((100, 40)).columns, 120)


def _draw(screen: object, columns: int, color: bool) -> str:
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=columns,
        height=1000,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},
    )
    with console.capture() as capture:
        console.print(screen)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"
