"""A checkpoint that is not finite is never written over a good one, nor under the name of one.

`install` puts the gate before torch.save, safetensors, torch.distributed.checkpoint and the frameworks on top
of them; `uninstall` takes it away again. Where each rank writes its own file, each decides for itself; where
they write one checkpoint together, they decide together.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

from nanwatch.act.after_import import AfterImport
from nanwatch.act.agreement import Agreement
from nanwatch.act.distributed_saves import gate_distributed_saves
from nanwatch.act.framework_saves import Frameworks
from nanwatch.act.judging import Judge, Told
from nanwatch.act.kept_aside import removed, renamed
from nanwatch.act.safetensors_saves import gate_safetensors
from nanwatch.act.torch_saves import gate_torch_saves
from nanwatch.watching.wrapping import Wrappers

_judge = Judge()


def _put_on(put_on: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Never at the price of the program's import."""
    _judge.guarded(lambda: put_on(module), None)


def _gated_rename(stays: bool, original: Callable[..., Any]) -> Callable[..., Any]:
    """Of a function that moves a file, or (`stays`) makes a second one of it."""

    def rename(src: Any, dst: Any, *others: Any, **options: Any) -> Any:
        plain = not others and not options
        if plain and _judge.guarded(lambda: renamed(src, dst, original, stays), False):
            return dst if stays else None
        return original(src, dst, *others, **options)

    return rename


def _gated_remove(original: Callable[..., None]) -> Callable[..., None]:
    def remove(path: Any, **options: Any) -> None:
        if options or not _judge.guarded(lambda: removed(path), False):
            original(path, **options)

    return remove


class _Gate:
    """All wrappers, put on together and taken off together."""

    def __init__(self) -> None:
        self._wrappers = Wrappers()
        self._later = AfterImport()
        self._agreement = Agreement()
        self._users = 0
        self._looking_on = 0
        """Users who want to be told and nothing else."""

    def install(self, told: Told | None = None, holds_back: bool = True) -> None:
        if told is not None:
            _judge.told.append(told)
        self._users += 1
        self._looking_on += not holds_back
        _judge.holds_back = self._looking_on < self._users
        if self._users > 1:
            return
        gate_torch_saves(self._wrap, _judge)
        gate_safetensors(self._wrap, _judge)
        for name in ("replace", "rename"):
            self._wrap(os, name, partial(_gated_rename, False))
        for owner, name in ((os, "link"), (shutil, "copyfile"), (shutil, "copy"), (shutil, "copy2")):
            self._wrap(owner, name, partial(_gated_rename, True))
        for name in ("remove", "unlink"):
            self._wrap(os, name, _gated_remove)
        modules = Frameworks(self._wrap, _judge, self._agreement).modules()
        modules["torch.distributed.checkpoint.state_dict_saver"] = partial(
            gate_distributed_saves, self._wrap, _judge, self._agreement
        )
        for name, put_on in modules.items():
            self._later.do(name, partial(_put_on, put_on))

    def uninstall(self, told: Told | None = None, holds_back: bool = True) -> None:
        if told in _judge.told:
            _judge.told.remove(told)
        self._users = max(0, self._users - 1)
        self._looking_on = max(0, self._looking_on - (not holds_back))
        _judge.holds_back = self._looking_on < self._users or self._users == 0
        if self._users == 0:
            self._later.end()
            self._wrappers.take_off()

    def _wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Where this version has no such function there is nothing to guard."""
        if name in vars(owner):
            original, wrapper = vars(owner)[name], make(vars(owner)[name])
            self._wrappers.put(owner, name, wrapper)
            for able in (os.supports_dir_fd, os.supports_follow_symlinks):
                if owner is os and original in able:
                    able.add(wrapper)


_gate = _Gate()


def install(told: Told | None = None, holds_back: bool = True) -> None:
    """Put the gate up. Whoever calls it calls `uninstall` once, with the same arguments: the last one takes
    it down. `told` is called with what was bad when a checkpoint was written, aside or not. Without
    `holds_back` a bad one gets the name that was asked for, unless somebody else holds it back."""
    _gate.install(told, holds_back)


def uninstall(told: Told | None = None, holds_back: bool = True) -> None:
    _gate.uninstall(told, holds_back)


@contextmanager
def checkpoint_gate() -> Iterator[None]:
    """The gate for a block of code."""
    install()
    try:
        yield
    finally:
        uninstall()


@contextmanager
def unchecked() -> Iterator[None]:
    """What this thread saves inside is wanted as it is."""
    with _judge.rest():
        yield
