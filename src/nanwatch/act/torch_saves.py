"""The gate on `torch.save`.

It stands where `torch.save` looks up its parts when it is called, so that it also holds for a program that
has imported `save` by name long before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import serialization

from nanwatch.act.gated_write import write_gated
from nanwatch.act.judging import Judge
from nanwatch.act.kept_aside import say_written_anyway, to_read
from nanwatch.messages import say

Wrap = Callable[[Any, str, Callable[[Any], Any]], None]


class _Target:
    """Stands for a file that is opened only when it is known what goes into it, and under which name. To
    anybody but `torch.save` it is the file that was asked for."""

    def __init__(self, path: str, opened: Callable[[str], Any]) -> None:
        self.path = path
        self.opened = opened
        self._as_asked: tuple[Any, Any] | None = None

    def __enter__(self) -> _Target:
        return self

    def __getattr__(self, name: str) -> Any:
        if self._as_asked is None:
            opener = self.opened(self.path)
            self._as_asked = opener, opener.__enter__()
        return getattr(self._as_asked[1], name)

    def __exit__(self, *error: Any) -> Any:
        return self._as_asked[0].__exit__(*error) if self._as_asked is not None else None


def gate_torch_saves(wrap: Wrap, judge: Judge) -> None:
    def make_open_zip(original: Any) -> Any:
        def _open_zipfile_writer(name_or_buffer: Any) -> Any:
            if not isinstance(name_or_buffer, str):
                return original(name_or_buffer)
            return _Target(name_or_buffer, original)

        return _open_zipfile_writer

    def make_open_file(original: Any) -> Any:
        def _open_file_like(name_or_buffer: Any, mode: str) -> Any:
            if mode != "wb" or not isinstance(name_or_buffer, str):
                return original(name_or_buffer, mode)
            return _Target(name_or_buffer, lambda path: original(path, mode))

        return _open_file_like

    def make_save(original: Any) -> Any:
        def _save(obj: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
            bad = judge.bad_in(obj)
            if not isinstance(file, _Target):
                with judge.telling():
                    result = original(obj, file, *args, **kwargs)
                    if bad:
                        say_written_anyway(bad, say("gate.stream"), say("gate.no_file"))
                    return result

            def write(path: str) -> Any:
                with file.opened(path) as opened:
                    return original(obj, opened, *args, **kwargs)

            return write_gated(judge, file.path, bad, write)

        return _save

    def make_load(original: Any) -> Any:
        def load(f: Any, *args: Any, **kwargs: Any) -> Any:
            return original(to_read(f), *args, **kwargs)

        return load

    wrap(torch, "load", make_load)
    wrap(serialization, "_open_zipfile_writer", make_open_zip)
    wrap(serialization, "_open_file_like", make_open_file)
    wrap(serialization, "_save", make_save)
    wrap(serialization, "_legacy_save", make_save)
