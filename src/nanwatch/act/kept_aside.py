"""Where a bad checkpoint goes instead, and the sentence that says so."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
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


_instead: dict[str, str] = {}
"""Name that was asked for -> where the file is."""


def to_read(path: Any) -> Any:
    """What is opened when the program reads a file that it believes to have written, and nothing lies under
    that name: it would end there, and not of what is wrong with it."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return path
    name = os.path.abspath(os.fsdecode(path))
    aside = _instead.get(name)
    if aside is None or os.path.lexists(name) or not os.path.exists(aside):
        return path
    warn(say("gate.read_instead", path=name, aside=aside))
    return aside


def renamed(path: Any, target: Any, rename: Callable[[str, str], None]) -> bool:
    """Whether the program renames a file that it believes to have written, as one does so that a checkpoint
    is whole or not there at all: the one kept aside stays aside, and `target` what it is."""
    if not all(isinstance(each, (str, bytes, os.PathLike)) for each in (path, target)):
        return False
    name, goal = (os.path.abspath(os.fsdecode(each)) for each in (path, target))
    aside = _instead.get(name)
    if aside is None or os.path.lexists(name) or not os.path.exists(aside):
        return False
    free = file_aside(goal)
    rename(aside, free)
    del _instead[name]
    _instead[goal] = free
    warn(say("gate.renamed", path=goal, aside=free))
    return True


def say_kept_aside(bad: Sequence[BadTensor], path: Any, aside: Any) -> None:
    if isinstance(path, (str, bytes, os.PathLike)):
        _instead[os.path.abspath(os.fsdecode(path))] = os.fsdecode(aside)
    warn(say("gate.kept_aside", tensors=_listed(bad), path=_text(path), aside=_text(aside)))


def say_written_anyway(bad: Sequence[BadTensor], target: Any, why: str) -> None:
    warn(say("gate.written_anyway", tensors=_listed(bad), target=_text(target), why=why))


def _listed(bad: Sequence[BadTensor]) -> str:
    return listed([each.numbers for each in bad])


def _text(target: Any) -> str:
    return os.fsdecode(target) if isinstance(target, (str, bytes, Path)) else type(target).__name__
