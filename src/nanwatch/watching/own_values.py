"""What an object of the program's holds, read without running any code of its class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

import torch
from torch import nn

MOST_AT_ONCE = 500

_NATIVE = (GetSetDescriptorType, MemberDescriptorType)


def dict_of(value: Any) -> dict[str, Any] | None:
    """Its attributes, unless its class makes them up for who asks."""
    for kind in type(value).__mro__:
        described = kind.__dict__.get("__dict__")
        if described is not None:
            found = described.__get__(value) if type(described) in _NATIVE else None
            return found if type(found) is dict else None
    return None


def items_of(value: Any) -> Iterable[Any] | None:
    """What is in a list, tuple, set or dict, or in one of a class built on these, as it is kept there: a
    class may make its items when somebody goes through them. None for anything else."""
    kind = type(value)
    for known, items in _KINDS:
        if issubclass(kind, known):
            return items(value)
    return None


def as_they_are_now(items: Iterable[Any]) -> Iterator[Any]:
    """Another thread may put more among them meanwhile. These are taken in one go; of very many, those that
    there were until then."""
    left = iter(items)
    while taken := _taken(left):
        yield from taken


def _taken(left: Iterator[Any]) -> tuple[Any, ...]:
    try:
        return tuple(islice(left, MOST_AT_ONCE))
    except RuntimeError:  # "changed size during iteration"
        return ()


def any_weight(module: nn.Module) -> torch.Tensor | None:
    """One of what the module says that it learns: it may say so in a list."""
    return next(iter(module.parameters()), None)


_KINDS = (
    (dict, dict.values),
    (list, list.__iter__),
    (tuple, tuple.__iter__),
    (set, set.__iter__),
    (frozenset, frozenset.__iter__),
)
