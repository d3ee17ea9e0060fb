"""Modules whose methods the program calls by name: `model.encode(x)` runs in `model`, which nobody called."""

from __future__ import annotations

import gc
from types import CodeType, FunctionType

from torch import nn

from nanwatch.watching.module_calls import path_of
from nanwatch.watching.stack import Stack

NOT_THE_MODEL = ("step", "loss", "fit", "train", "__init__")
"""Words in the names of methods that train or build a model rather than compute it (`training_step`)."""


def owners_of(stack: Stack, called: tuple[nn.Module, ...]) -> tuple[nn.Module, ...]:
    """The modules in whose methods the stack lies, outermost first, then those that were called."""
    by_code = _methods_of_living_modules()
    found: list[nn.Module] = []
    for code, _ in stack:
        if any(word in code.co_name for word in NOT_THE_MODEL):
            continue
        fitting = [m for m in by_code.get(code, ()) if not called or called[0] in list(m.modules())]
        if len(fitting) == 1 and fitting[0] not in called:
            found.append(fitting[0])
    owners = tuple(dict.fromkeys(reversed(found)))
    if any(next(owner.parameters(), None) is None for owner in owners):
        return called  # nothing to learn: a loss or a helper, not a model
    return (*owners, *called)


def module_path(stack: Stack, called: tuple[nn.Module, ...]) -> str | None:
    """The path of the innermost module from the outermost in whose code the stack lies."""
    return path_of(owners_of(stack, called))


def _methods_of_living_modules() -> dict[CodeType, list[nn.Module]]:
    known: dict[CodeType, list[nn.Module]] = {}
    for module in [o for o in gc.get_objects() if issubclass(type(o), nn.Module)]:
        for cls in type(module).__mro__:
            if cls is nn.Module:
                break
            for member in vars(cls).values():
                if isinstance(member, FunctionType):
                    known.setdefault(member.__code__, []).append(module)
    return known
