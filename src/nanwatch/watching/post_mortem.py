"""After the program died of an exception: were non-finite values in its hands?"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from nanwatch.tensors import is_finite
from nanwatch.watching.stack import is_own
from nanwatch.watching.tape import Entry, tensors_in

INNERMOST = 4
"""How many frames, from the one that raised outwards, may hold the guilty tensors."""


def bad_tensors_of(
    error: BaseException, failing: tuple[Entry, BaseException] | None
) -> list[tuple[str, torch.Tensor]]:
    """The non-finite tensors that the failing call was given, or that lay in the innermost frames."""
    if failing is not None and failing[1] is error and failing[0].kind != "module":
        given = [("argument", t) for t in tensors_in((failing[0].args, failing[0].kwargs)) if _bad(t)]
        if given:
            return given
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for frame_locals in _innermost_locals(error.__traceback__):
        for name, value in frame_locals.items():
            if name.startswith("__"):
                continue
            for tensor in tensors_in(value):
                if _bad(tensor):
                    found.setdefault(id(tensor), (name, tensor))
        if found:
            break
    return list(found.values())


def _innermost_locals(traceback: TracebackType | None) -> list[dict[str, Any]]:
    frames = []
    while traceback is not None:
        if not is_own(traceback.tb_frame.f_code.co_filename):
            frames.append(traceback.tb_frame.f_locals)
        traceback = traceback.tb_next
    return frames[::-1][:INNERMOST]


def _bad(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and not is_finite(tensor)
