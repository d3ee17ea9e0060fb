"""What TorchScript needs to know of our wrappers, so that it compiles what it compiles without them.

It finds the names in a class by the frame of who called `torch.jit.script`, and knows functions such as
`torch.autograd.grad` by their identity.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch.jit._builtins as builtins

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def one_frame_further(function: Any) -> Callable[[tuple[Any, ...], dict[str, Any]], Arguments]:
    """Of a function that a wrapper calls: its arguments, the wrapper's frame counted if it counts them."""
    names = list(inspect.signature(function).parameters)
    place = names.index("_frames_up") if "_frames_up" in names else None

    def counted(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        if place is None:
            return args, kwargs
        if len(args) > place:
            return (*args[:place], args[place] + 1, *args[place + 1 :]), kwargs
        return args, {**kwargs, "_frames_up": kwargs.get("_frames_up", 0) + 1}

    return counted


class Builtins:
    """Wrappers that TorchScript takes for the builtins they are around, until they are `forgotten`.

    Its table of them is filled when it is first asked: until then only the list that it is made of is there.
    """

    def __init__(self) -> None:
        self._known: list[tuple[Any, str]] = []

    def know(self, wrapper: Any, original: Any) -> None:
        listed = getattr(builtins, "_builtin_ops", None)
        name = next((op for known, op in listed or () if known is original), None)
        if listed is None or name is None:
            return
        self._known.append((wrapper, name))
        listed.append(self._known[-1])
        if (table := _table()) is not None:
            table[id(wrapper)] = name

    def forget(self) -> None:
        for known in self._known:
            builtins._builtin_ops[:] = [each for each in builtins._builtin_ops if each is not known]
            if (table := _table()) is not None:
                table.pop(id(known[0]), None)
        self._known.clear()


def _table() -> dict[int, str] | None:
    return getattr(builtins, "_builtin_table", None)
