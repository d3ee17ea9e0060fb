"""The step again with every copy between host and device finished before anything reads it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes, call_again
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite
from nanwatch.watching.stack import user_frame
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, given_to, tensors_in, version_of
from nanwatch.watching.torch_functions import written_to

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

    line: int | None
    code: str
    inside: bool = False
    """Made within a model."""


def applies(case: Case) -> bool:
    return torch.cuda.is_available() and any(
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
    finite = runs_finite(case.rerun(Changes(around=mode.entered)))
    if finite is None:
        return Outcome(None, "")
    return Outcome(finite, (FINITE if finite else FAILS).say(), [*found, *mode.copies])


def copies_on_tape(case: Case) -> list[Copy]:
    """The calls of the program's own code, in this step and those before it that are still known, that copy
    without waiting between host and device."""
    found = []
    for tape in (*case.trouble.earlier, case.tape):
        for entry in tape.entries:
            if _asynchronous(entry):
                frame = user_frame(entry.stack)
                found.append(Copy(frame.line if frame else None, frame.code if frame else ""))
    return list(dict.fromkeys(found))


def _asynchronous(entry: Entry) -> bool:
    if getattr(entry.call, "__name__", "") not in ("copy_", "to", "cuda", "cpu"):
        return False
    asked = entry.kwargs.get("non_blocking") or any(a is True for a in entry.args[1:])
    places = {t.device.type for t in (*given_to(entry), *tensors_in(entry.outputs))}
    return bool(asked) and len(places) > 1


def _read_too_early(case: Case) -> Entry | None:
    """A call whose recorded result is bad and that gives a finite one now, on the very same tensors: what
    they hold has changed without anybody writing to them."""
    targets = {
        key_of(t)
        for tape in (*case.trouble.earlier, case.tape)
        for e in tape.entries
        if _asynchronous(e)
        for t in [*tensors_in(written_to(e.args, e.kwargs)), *tensors_in(e.outputs)]
    }
    for entry in case.tape.entries:
        if entry.kind != "op" or not any(key_of(t) in targets for t in given_to(entry)):
            continue
        made = [t for t, version in entry.made if measurable(t) and version_of(t) == version]
        if made and not all(is_finite(t) for t in made):
            return entry if call_again(entry, case.trouble.step) is None else None
    return None


class _Synchronous(TorchDispatchMode):
    """Every copy waits, before and after."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.copies: list[Copy] = []

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        torch.cuda.synchronize()
        with self:
            yield
        torch.cuda.synchronize()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = str(function)
        if name.startswith(("aten.copy_", "aten._to_copy")):
            position = 2 if name.startswith("aten.copy_") else None
            asked = kwargs.get("non_blocking") or (position is not None and len(args) > 2 and args[2])
            if asked:
                self.copies.append(Copy(None, "", inside=True))
                kwargs["non_blocking"] = False
                args = args[:2] if position is not None else args
            torch.cuda.synchronize()
            made = function(*args, **kwargs)
            torch.cuda.synchronize()
            return made
        return function(*args, **kwargs)
