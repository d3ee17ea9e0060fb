"""The user's line with its neighbours, where the file still says what ran."""

from __future__ import annotations

import linecache

from nanwatch.records import Birth


def lines_around(birth: Birth, context: int) -> list[tuple[int, str]]:
    """(line number, text) around the birth; only the recorded code when the file is gone or has changed."""
    if birth.line is None:
        return []
    recorded = birth.code.strip()
    lines = linecache.getlines(birth.file) if birth.file else []
    here = lines[birth.line - 1].strip() if 0 < birth.line <= len(lines) else None
    if here is None or (recorded and here != recorded.splitlines()[0].strip()):
        return [(birth.line, recorded)] if recorded else []
    first = max(birth.line - context, 1)
    last = min(birth.line + context, len(lines))
    return [(number, lines[number - 1].rstrip()) for number in range(first, last + 1)]
