"""After the program died of an exception: were non-finite values in its hands?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch

from nanwatch.tensors import is_finite
from nanwatch.watching.stack import is_own
from nanwatch.watching.tape import Entry, tensors_in

INNERMOST = 4
"""How many frames, from the one that raised outwards, may hold the guilty tensors."""

_MACHINERY = tuple(
    os.path.join(os.path.dirname(torch.__file__), *path.split("/"))
    for path in "_ops.py _compile.py _dynamo/ utils/_python_dispatch.py nn/modules/module.py".split()
)
"""Frames between a call and the op that it makes: they do not count."""


def bad_tensors_of(
    error: BaseException, failing: tuple[Entry, BaseException] | None, asked: set[int]
) -> list[tuple[str, torch.Tensor]]:
    """The non-finite tensors that the failing call was given, or that lay in the innermost frames. A program
    that ends itself may hold NaN that it minds nothing of: then only what it would train on, or has `asked`
    about (by identity)."""
    if failing is not None and failing[1] is error and failing[0].kind != "module":
        given = [("argument", t) for t in tensors_in((failing[0].args, failing[0].kwargs)) if _bad(t)]
        if given:
            return given
    ends_itself = isinstance(error, SystemExit)
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for frame_locals in _innermost_locals(error.__traceback__):
        for name, value in frame_locals.items():
            if name.startswith("__"):
                continue
            for tensor in tensors_in(value):
                minds = not ends_itself or tensor.requires_grad or id(tensor) in asked
                if minds and _bad(tensor):
                    found.setdefault(id(tensor), (name, tensor))
        if found:
            break
    return list(found.values())


def _innermost_locals(traceback: TracebackType | None) -> Iterator[dict[str, Any]]:
    frames = []
    while traceback is not None:
        if not is_own(traceback.tb_frame.f_code.co_filename):
            frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    looked_at = 0
    for frame in reversed(frames):
        yield frame.f_locals
        looked_at += not frame.f_code.co_filename.startswith(_MACHINERY)
        if looked_at == INNERMOST:
            return


def _bad(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and not is_finite(tensor)
