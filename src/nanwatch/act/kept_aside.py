"""Where a bad checkpoint goes instead, and the sentence that says so."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanwatch.act.saved_state import BadTensor
from nanwatch.act.tensor_list import listed
from nanwatch.messages import say
from nanwatch.watching.shield import warn


def file_aside(path: str, exists: Callable[[str], bool] = os.path.lexists) -> str:
    """`model.pt` -> `model.nonfinite.pt`, then `model.nonfinite-2.pt`: the first name that is free."""
    folder, name = os.path.split(path)
    stem, suffix = os.path.splitext(name)
    number = 1
    while exists(free := os.path.join(folder, f"{stem}.nonfinite{_dash(number)}{suffix}")):
        number += 1
    return free


def folder_aside(path: str, number: int) -> str:
    """`run/checkpoint-500` -> `run/nonfinite-checkpoint-500`: a name in front, because whoever looks for the
    newest `checkpoint-*` to load, or the oldest to delete, must not find it."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, f"nonfinite{_dash(number)}-{name}")


def free_number(path: str) -> int:
    """The first number with which `folder_aside` gives a name that is free."""
    number = 1
    while os.path.lexists(folder_aside(path, number)):
        number += 1
    return number


def _dash(number: int) -> str:
    return "" if number == 1 else f"-{number}"


@dataclass(frozen=True)
class _Refused:
    """A file that the program believes to have written."""

    aside: str
    """Where it is."""
    under_its_name: tuple[int, int, int] | None
    """What lay there at the time: an older checkpoint, or the empty file that was to be filled."""


_refused: dict[str, _Refused] = {}
"""By the name that was asked for."""


def _signature(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _last_refused(path: Any) -> tuple[str, str] | None:
    """(name, where the file is) if the last that the program wrote under this name was refused."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return None
    name = os.path.abspath(os.fsdecode(path))
    known = _refused.get(name)
    if known is None or not os.path.exists(known.aside) or _signature(name) != known.under_its_name:
        return None
    return name, known.aside


def _is_nothing(name: str) -> bool:
    """Nothing lies there, or the empty file of `tempfile`."""
    return not os.path.lexists(name) or (os.path.isfile(name) and os.path.getsize(name) == 0)


def to_read(path: Any) -> Any:
    """What is opened when the program reads a file that it believes to have written, and nothing lies under
    that name: it would end there, and not of what is wrong with it."""
    found = _last_refused(path)
    if found is None or not _is_nothing(found[0]):
        return path
    warn(say("gate.read_instead", path=found[0], aside=found[1]))
    return found[1]


def renamed(path: Any, target: Any, rename: Callable[[str, str], Any], stays: bool = False) -> bool:
    """Whether the program renames a file that it believes to have written, as one does so that a checkpoint
    is whole or not there at all: the one kept aside stays aside, and `target` what it is. `stays`: it copies
    or links it."""
    found = _last_refused(path)
    if found is None or not isinstance(target, (str, bytes, os.PathLike)):
        return False
    name, aside = found
    goal = os.path.abspath(os.fsdecode(target))
    if stays and os.path.isdir(goal):
        goal = os.path.join(goal, os.path.basename(name))
    free = file_aside(goal)
    rename(aside, free)
    if not stays:
        _refused.pop(name)
        if os.path.lexists(name) and _is_nothing(name):
            os.unlink(name)
    _refused[goal] = _Refused(free, _signature(goal))
    warn(say("gate.renamed", path=goal, aside=free))
    return True


def removed(path: Any) -> bool:
    """Whether the program removes a file that it believes to have written, and that is not there."""
    found = _last_refused(path)
    return found is not None and not os.path.lexists(found[0])


def say_kept_aside(bad: Sequence[BadTensor], path: Any, aside: Any) -> None:
    if isinstance(path, (str, bytes, os.PathLike)):
        name = os.path.abspath(os.fsdecode(path))
        _refused[name] = _Refused(os.fsdecode(aside), _signature(name))
    warn(say("gate.kept_aside", tensors=_listed(bad), path=_text(path), aside=_text(aside)))


def say_written_anyway(bad: Sequence[BadTensor], target: Any, why: str) -> None:
    warn(say("gate.written_anyway", tensors=_listed(bad), target=_text(target), why=why))


def _listed(bad: Sequence[BadTensor]) -> str:
    return listed([each.numbers for each in bad])


def _text(target: Any) -> str:
    return os.fsdecode(target) if isinstance(target, (str, bytes, Path)) else type(target).__name__
