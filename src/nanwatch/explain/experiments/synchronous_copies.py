"""The step again with every copy between host and device finished before anything reads it."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nanwatch.explain.awaited_copies import AwaitedCopies, noting_waits
from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.text import Text
from nanwatch.records import Frame
from nanwatch.replay.again import Changes
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite
from nanwatch.watching.stack import Stack, take_stack, user_frame
from nanwatch.watching.storages import key_of
from nanwatch.watching.streams import on_side_stream
from nanwatch.watching.tape import Entry, given_to, tensors_in, version_of
from nanwatch.watching.torch_functions import changes_its_input, written_to

NAME = "synchronous-copies"
TITLE = Text("running the step with synchronous copies", "用同步拷贝运行这一步")
FINITE = Text("runs finite with synchronous copies", "使用同步拷贝时结果有限")
FAILS = Text("fails with synchronous copies too", "使用同步拷贝时也失败")
READ_AGAIN = Text(
    "line {line} on the same tensors, after the copy is done, is finite",
    "拷贝完成后，第 {line} 行在相同张量上的结果有限",
)


@dataclass(frozen=True)
class Copy:
    """An asynchronous copy that this step hangs on."""

    stack: Stack
    phase: str
    """"forward" when a model makes it."""

    @property
    def frame(self) -> Frame | None:
        return user_frame(self.stack)


def applies(case: Case) -> bool:
    return torch.cuda.is_initialized() and any(
        t.is_cuda for e in case.tape.entries for t in tensors_in((e.args, e.kwargs, e.outputs))
    )


def run(case: Case) -> Outcome:
    torch.cuda.synchronize()
    found = copies_on_tape(case)
    late = _read_too_early(case)
    if late is not None:
        frame = user_frame(late.stack)
        return Outcome(True, READ_AGAIN.say(line=frame.line if frame else "?"), found)
    mode = _Synchronous()
    readers = _readers(case)
    finite = runs_finite(case.rerun(Changes(around=mode.entered, call=lambda e: _afresh(e, readers))))
    if finite is None:
        return Outcome(None, "")
    return Outcome(finite, (FINITE if finite else FAILS).say(), [*found, *mode.copies])


def copies_on_tape(case: Case) -> list[Copy]:
    """The calls of the program's own code, in this step and those before it that are still known, that copy
    between host and device without waiting, and that somebody would have to wait for."""
    return list(dict.fromkeys(Copy(e.stack, "data") for e in _to_be_awaited(case)))


def copies_into(case: Case, tensor: torch.Tensor) -> list[Copy]:
    """Those of them that wrote into this memory."""
    key = key_of(tensor)
    return [Copy(e.stack, "data") for e in _to_be_awaited(case) if any(key_of(t) == key for t in _targets(e))]


def _to_be_awaited(case: Case) -> list[Entry]:
    tapes = (case.tape, *reversed(case.trouble.earlier))
    return [e for tape in tapes for e in tape.entries if _asynchronous(e) and _must_be_awaited(e)]


def _targets(entry: Entry) -> list[torch.Tensor]:
    if changes_its_input(entry.call, entry.kwargs):
        return tensors_in(written_to(entry.args, entry.kwargs))
    return tensors_in(entry.outputs)


def _asynchronous(entry: Entry) -> bool:
    if getattr(entry.call, "__name__", "") not in ("copy_", "to", "cuda", "cpu"):
        return False
    asked = entry.kwargs.get("non_blocking") or any(a is True for a in entry.args[1:])
    places = {t.device.type for t in (*given_to(entry), *tensors_in(entry.outputs))}
    return bool(asked) and len(places) > 1


def _must_be_awaited(entry: Entry) -> bool:
    """To the GPU, on the stream that the program computes on, and from memory that nobody has written since,
    a copy may be left to itself."""
    to_host = any(t.device.type == "cpu" for t in _targets(entry))
    rewritten = any(version_of(t) != version for t, version in entry.versions if not t.is_cuda)
    return entry.on_side_stream or to_host or rewritten


def _readers(case: Case) -> list[Entry]:
    """The calls that read what an asynchronous copy wrote."""
    targets = {
        key_of(t)
        for tape in (*case.trouble.earlier, case.tape)
        for e in tape.entries
        if _asynchronous(e)
        for t in _targets(e)
    }
    return [e for e in case.tape.entries if e.kind == "op" and any(key_of(t) in targets for t in given_to(e))]


def _afresh(entry: Entry, readers: list[Entry]) -> Callable[..., Any]:
    """Not what the call gave to the program, but what it gives now that the copies are done."""
    unchanged = all(version_of(t) == version for t, version in entry.versions)
    if not unchanged or not any(entry is reader for reader in readers):
        return entry.call
    return functools.partial(entry.call)


def _read_too_early(case: Case) -> Entry | None:
    """A call whose recorded result is bad and that gives a finite one now, on the very same tensors: what
    they hold has changed without anybody writing to them."""
    for entry in _readers(case):
        made = [t for t, version in entry.made if measurable(t) and version_of(t) == version]
        if made and not all(is_finite(t) for t in made):
            return entry if _finite_now(entry) else None
    return None


def _finite_now(entry: Entry) -> bool:
    """Of a call that neither draws nor writes: the program must not notice that it was made once more."""
    if entry.rng is not None or changes_its_input(entry.call, entry.kwargs):
        return False
    with torch.no_grad():
        made = tensors_in(entry.call(*entry.args, **entry.kwargs))
    return all(is_finite(t) for t in made if measurable(t))


class _Synchronous(TorchDispatchMode):
    """Every copy waits, before and after."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen: list[tuple[Copy, bool, torch.Tensor, int]] = []
        """A copy to the device, whether somebody must wait for it in any case, its source and the version of
        that."""
        self._to_host = AwaitedCopies()
        self._wait: Callable[[], None] = torch.cuda.synchronize

    @property
    def copies(self) -> list[Copy]:
        found = [c for c, awaited, source, version in self._seen if awaited or version_of(source) != version]
        to_host = [Copy(stack, "forward") for stack in self._to_host.suspects()]
        return list(dict.fromkeys([*to_host, *found]))

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        self._wait()
        with noting_waits(self._to_host.waited), self:
            yield
        self._wait()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        self._to_host.ran(function, args, kwargs)
        if function not in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default):
            return function(*args, **kwargs)
        in_place = function is torch.ops.aten.copy_.default
        source = args[1] if in_place else args[0]
        target = args[0].device if in_place else torch.device(kwargs.get("device") or source.device)
        asked = kwargs.pop("non_blocking", False) or (in_place and len(args) > 2 and args[2])
        stack = take_stack(sys._getframe(1))
        if asked and target.type == "cuda" and not source.is_cuda:
            self._seen.append((Copy(stack, "forward"), on_side_stream(), source, version_of(source)))
        self._wait()
        made = function(*(args[:2] if in_place else args), **kwargs)
        self._wait()
        if asked and target.type == "cpu" and source.is_cuda:
            self._to_host.copied(stack, made)
        return made
