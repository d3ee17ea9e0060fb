"""Text that any terminal takes: no control characters from the user's code, no character it lacks."""

from __future__ import annotations

import re

_CUT = re.compile(r"(?<=\S)…")
_PLAIN = str.maketrans({"…": "...", "─": "-", "━": "-", "│": "|", "·": "|", "❱": ">", "→": "->", "’": "'"})


def without_controls(text: str) -> str:
    """Tabs widened, escapes and other control characters taken out: code must not steer the terminal."""
    return "".join(c if c.isprintable() else " " for c in text.expandtabs(4))


def has_line_drawing(encoding: str) -> bool:
    return fits("…─│❱", encoding)


def fits(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def in_encoding(text: str, encoding: str) -> str:
    """`text` with plain stand-ins for what `encoding` lacks, so that printing it cannot fail."""
    if fits(text, encoding):
        return text
    if not has_line_drawing(encoding):
        text = _CUT.sub("~", text).translate(_PLAIN)  # one column for one, so that tables stay in line
    try:
        return text.encode(encoding, "replace").decode(encoding)
    except LookupError:
        return text.encode("ascii", "replace").decode("ascii")
