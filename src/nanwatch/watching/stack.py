"""Where the program is: call stacks taken cheaply now and read later.

Taking one costs a walk over the frames (a pair of references each); file names, line numbers and
source text are looked up only when somebody reads it.
"""

from __future__ import annotations

import linecache
import os
import sysconfig
from functools import lru_cache
from types import CodeType, FrameType

from nanwatch.records import Frame

Stack = tuple[tuple[CodeType, int], ...]
"""Innermost frame first: (code object, index of its last instruction)."""

MODE_METHODS = ("__torch_function__", "__torch_dispatch__")
"""A mode of the program hands calls on; the line that made the call is the one to show."""

DEEPEST = 60


_last: Stack = ()


def take_stack(frame: FrameType | None) -> Stack:
    """The stack from `frame` outwards. What every recorded call asks.

    Most calls come from where the one before came from, but for the innermost frame: pairs that are the same
    are the same object. A hundred thousand recorded calls would else be a million objects, and Python goes
    through all of them whenever it looks for garbage."""
    global _last
    taken: list[tuple[CodeType, int]] = []
    for known in _last:
        if frame is None:
            break
        code, place = frame.f_code, frame.f_lasti
        taken.append(known if known[1] == place and known[0] is code else (code, place))
        frame = frame.f_back
    while frame is not None and len(taken) < DEEPEST:
        taken.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    _last = stack = tuple(taken)
    return stack


def stack_within(frame: FrameType | None, until: FrameType | None, until_function: str = "") -> Stack:
    """The same up to and without `until`, or the innermost frame of a function of that name."""
    taken: list[tuple[CodeType, int]] = []
    while frame is not None and frame is not until and len(taken) < DEEPEST:
        if frame.f_code.co_name == until_function:
            break
        taken.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(taken)


def read_stack(stack: Stack) -> tuple[Frame, ...]:
    """The frames of `stack`, outermost first, without nanwatch's own."""
    frames: list[Frame] = []
    for code, lasti in reversed(stack):
        if is_own(code.co_filename):
            if code.co_filename.endswith(os.path.join("cli", "program.py")):
                frames.clear()  # what lies below is how nanwatch itself was started
            continue
        line = line_of(code, lasti)
        text = linecache.getline(code.co_filename, line).strip()
        frames.append(Frame(code.co_filename, line, code.co_name, text, is_library(code.co_filename)))
    return tuple(frames)


def user_frame(stack: Stack) -> Frame | None:
    """The innermost frame of the user's own code."""
    for code, lasti in stack:
        if is_users(code):
            line = line_of(code, lasti)
            text = linecache.getline(code.co_filename, line).strip()
            return Frame(code.co_filename, line, code.co_name, text)
    return None


def is_users(code: CodeType) -> bool:
    """The user's own, without what only hands calls on: the same call may be made again without it."""
    return not is_library(code.co_filename) and code.co_name not in MODE_METHODS


def line_of(code: CodeType, lasti: int) -> int:
    for start, end, line in code.co_lines():
        if start <= lasti < end and line is not None:
            return line
    return code.co_firstlineno


_own_folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_user_folders: list[str] = []


def treat_as_user_code(folder: str) -> None:
    """Files under `folder` are the user's own, wherever they are installed."""
    _user_folders.append(os.path.join(os.path.abspath(folder), ""))
    is_library.cache_clear()


def called_from(inner: Stack, outer: Stack) -> bool:
    """Whether `inner` is in code of the program that torch itself called from the very line that `outer` is
    at: a hook that packs what an op saves runs before the op, inside the same call. (A function that a
    transform of torch.func calls has the frames of the transform between.)"""
    same = 0  # the tracer's own frames come first in both
    while same < min(len(inner), len(outer)) and inner[same] == outer[same]:
        same += 1
    here = outer[same:]
    if not here or inner[-len(here) :] != here:
        return False
    between = [code.co_filename for code, _ in inner[same : len(inner) - len(here)]]
    theirs = [file for file in between if not is_own(file)]
    return bool(theirs) and not is_library(theirs[-1])


def in_transform(frame: FrameType | None) -> bool:
    """Whether a transform of torch.func is under way."""
    while frame is not None:
        if "_functorch" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


@lru_cache(maxsize=4096)
def is_own(file: str) -> bool:
    return file.startswith(_own_folder)


@lru_cache(maxsize=4096)
def is_library(file: str) -> bool:
    """Python's own files, installed packages and nanwatch itself are library; all else is the user's."""
    mine = max((folder for folder in _user_folders if file.startswith(folder)), key=len, default=None)
    if mine is not None:  # a virtual environment may lie inside the project
        installed = f"{os.sep}site-packages{os.sep}" in os.sep + file[len(mine) :]
        return installed or any(f.startswith(mine) and file.startswith(f) for f in _library_folders())
    if file.startswith("<"):
        return not file.startswith(("<stdin>", "<string>", "<ipython", "<console>"))
    if file.startswith(_own_folder) or f"{os.sep}site-packages{os.sep}" in file:
        return True
    return file.startswith(_library_folders())


@lru_cache(maxsize=1)
def _library_folders() -> tuple[str, ...]:
    import torch

    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib") if key in paths}
    folders |= {os.path.dirname(os.__file__), os.path.dirname(torch.__file__)}
    folders |= {os.path.realpath(folder) for folder in folders}
    return tuple(os.path.join(folder, "") for folder in folders)
