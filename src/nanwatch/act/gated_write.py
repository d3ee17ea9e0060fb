"""One file through the gate: a good one replaces the old in one move, a bad one goes beside it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import TypeVar

from nanwatch.act.judging import Judge
from nanwatch.act.kept_aside import file_aside, say_kept_aside, say_written_anyway
from nanwatch.act.saved_state import BadTensor
from nanwatch.act.whole_file import WholeFile, has_room, is_special, may_replace
from nanwatch.messages import say

R = TypeVar("R")


def write_gated(judge: Judge, target: str, bad: list[BadTensor], write: Callable[[str], R]) -> R:
    """`write(path)`; the file ends up as `target`, or beside it when there are `bad` tensors."""
    with judge.telling():
        return _write(judge, target, bad, write)


def _write(judge: Judge, target: str, bad: list[BadTensor], write: Callable[[str], R]) -> R:
    if judge.guarded(lambda: is_special(target), True):
        result = write(target)
        if bad:
            say_written_anyway(bad, target, say("gate.no_file"))
        return result
    return _write_bad(judge, target, bad, write) if bad else _write_good(judge, target, write)


def _write_good(judge: Judge, target: str, write: Callable[[str], R]) -> R:
    file = _begun(judge, target)
    if file is None:
        return write(target)
    result = _written(file, write)
    try:
        file.put()
    except OSError as error:
        judge.failed(error)
        file.copy_over()
    return result


def _begun(judge: Judge, target: str) -> WholeFile | None:
    """None where the file can only be written in place, as without the gate."""
    try:
        if not has_room(target) or not may_replace(target):
            return None
        return WholeFile(os.path.realpath(target))  # a link stays a link: what it points to is replaced
    except OSError:  # a folder that is not there or not writable, a name that is too long
        return None
    except Exception as error:
        judge.failed(error)
        return None


def _write_bad(judge: Judge, target: str, bad: list[BadTensor], write: Callable[[str], R]) -> R:
    try:
        file = WholeFile(os.path.abspath(target))
    except FileNotFoundError:
        return write(target)  # no such folder: the program's own error
    except OSError:
        return _write_elsewhere(target, bad, write)
    result = _written(file, write)
    aside = file_aside(file.target)
    try:
        file.put_as(aside)
    except OSError as error:
        judge.failed(error)
        aside = file.part
    say_kept_aside(bad, target, aside)
    return result


def _write_elsewhere(target: str, bad: list[BadTensor], write: Callable[[str], R]) -> R:
    """No file can be made beside the target: into the system's temporary folder with it."""
    try:
        aside = os.path.join(tempfile.mkdtemp(prefix="nonfinite-"), os.path.basename(target))
    except OSError:
        result = write(target)
        say_written_anyway(bad, target, say("gate.no_file"))
        return result
    result = write(aside)
    say_kept_aside(bad, target, aside)
    return result


def _written(file: WholeFile, write: Callable[[str], R]) -> R:
    try:
        return write(file.part)
    except BaseException:
        file.discard()
        raise
