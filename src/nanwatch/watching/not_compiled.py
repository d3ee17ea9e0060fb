"""Dynamo passes over our functions where it would pass over torch's own.

Where a function that it compiles calls one that it passes over (torch's layers are among these), it looks
at whatever is called from there: torch's `nn.Module.__call__` it knows to be none of the program's, ours it
would take for the program's own and compile by itself, with what it calls. Each code object that is marked is
passed over when it is called so; where it is inlined it is as ever, and so is what it calls. Dynamo itself is
not imported for this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

ROOMS = tuple(
    f"nanwatch.{room}." for room in ("watching", "tensors", "replay", "adapters", "act", "messages")
)
"""Not `nanwatch.stable`, whose modules are the program's to compile."""

_dynamo: Any = torch._C._dynamo.eval_frame
_marked: set[str] = set()


def hide_from_dynamo() -> None:
    """Mark what is loaded of us and was not marked before. It stays so: nobody else runs this code."""
    mark = _marking()
    for name, module in list(sys.modules.items()):
        if name.startswith(ROOMS) and name not in _marked and isinstance(module, ModuleType):
            _marked.add(name)
            for code in _codes_of(module):
                mark(code)


def _marking() -> Callable[[CodeType], object]:
    """As torch._dynamo.eval_frame.skip_code does it, by what this version of torch has."""
    if hasattr(_dynamo, "set_code_exec_strategy"):
        skipped = _dynamo._FrameExecStrategy(_dynamo._FrameAction.SKIP, _dynamo._FrameAction.DEFAULT)
        return lambda code: _dynamo.set_code_exec_strategy(code, skipped)
    found: Callable[[CodeType], object] = getattr(_dynamo, "skip_code", lambda code: None)
    return found


def _codes_of(module: ModuleType) -> Iterator[CodeType]:
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        parts = vars(value).values() if isinstance(value, type) else (value,)
        for function in parts:
            for part in _functions_in(function):
                yield from _nested(part.__code__)


def _functions_in(value: Any) -> Iterator[FunctionType]:
    if isinstance(value, property):
        value, *others = value.fget, value.fset
        yield from (other for other in others if isinstance(other, FunctionType))
    elif isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    if isinstance(value, FunctionType):
        yield value


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
