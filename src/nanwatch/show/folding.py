"""Long things made short: lists, stacks, shapes, numbers. Plain text, nothing drawn."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

from nanwatch.records import Frame, Numbers

Item = TypeVar("Item")
Say = Callable[..., str]

_PACKAGE = re.compile(r"[\\/](?:site|dist)-packages[\\/]([^\\/]+)")
_STDLIB = re.compile(r"[\\/]lib[\\/]python3[^\\/]*[\\/]|^<frozen ", re.IGNORECASE)


def fold_middle(items: Sequence[Item], limit: int) -> tuple[Sequence[Item], int, Sequence[Item]]:
    """(first items, how many were left out, last items); at most `limit` lines with the one that says so."""
    if len(items) <= limit:
        return items, 0, ()
    tail = max((limit - 1) // 2, 0)
    head = max(limit - 1 - tail, 1)
    return items[:head], len(items) - head - tail, items[len(items) - tail :]


def worst_first(tensors: Sequence[Numbers], limit: int) -> tuple[list[tuple[int, Numbers]], int]:
    """At most `limit` tensors with their positions, non-finite ones preferred, in their own order."""
    by_harm = sorted(enumerate(tensors), key=lambda pair: pair[1].finite)
    kept = sorted(by_harm[:limit], key=lambda pair: pair[0])
    return kept, len(tensors) - len(kept)


def fold_stack(stack: Sequence[Frame]) -> list[Frame | tuple[str, int]]:
    """The user's frames, and (package, count) for each run of library frames between them."""
    folded: list[Frame | tuple[str, int]] = []
    for is_library, group in groupby(stack, key=lambda frame: frame.library):
        frames = list(group)
        if is_library:
            folded.append((packages_of(frames), len(frames)))
        else:
            folded.extend(frames)
    return folded


def fit_stack(stack: Sequence[Frame], limit: int) -> tuple[int, list[Frame | tuple[str, int]]]:
    """(frames left out, what to show): the innermost user frames when not everything fits."""
    entries = fold_stack(stack)
    if len(entries) <= limit:
        return 0, entries
    library = [frame for frame in stack if frame.library]
    mine = [frame for frame in stack if not frame.library]
    kept = mine[-(limit - 1) :]
    if len(kept) == len(mine):
        return 0, [(packages_of(library), len(library)), *kept]
    return len(stack) - len(kept), [*kept]


def packages_of(frames: Sequence[Frame]) -> str:
    """ "torch", or "lightning, torch": the two that own most of the frames."""
    owners = [package_of(frame.file) for frame in frames]
    ranked = sorted(dict.fromkeys(owners), key=lambda owner: -owners.count(owner))
    return ", ".join(ranked[:2])


def package_of(file: str) -> str:
    installed = _PACKAGE.search(file)
    if installed:
        return installed.group(1).removesuffix(".py")
    if _STDLIB.search(file):
        return "python"
    folder = re.split(r"[\\/]", file)[:-1]
    return folder[-1] if folder else file


def shown_path(path: str) -> str:
    """Relative to the current directory when it lies below it."""
    try:
        relative = os.path.relpath(path) if os.path.isabs(path) else path
    except (ValueError, OSError):  # another drive, or the current directory is gone
        return path
    return path if relative.startswith("..") else relative


def shown_shape(shape: Sequence[int], say: Say) -> str:
    return "x".join(str(n) for n in shape) if shape else say("screen.scalar")


def shown_count(count: int, whole: int, say: Say) -> str:
    if count and count == whole and whole > 1:
        return say("screen.all")
    if count < 1_000_000:
        return str(count)
    return f"{count / 1e6:.4g}M" if count < 1_000_000_000 else f"{count / 1e9:.4g}G"


def shown_number(value: float | str | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.3g}"


def short_op(op: str) -> str:
    """ "aten._softmax.default" is "_softmax" where room is scarce."""
    return op.removeprefix("aten.").removesuffix(".default")
