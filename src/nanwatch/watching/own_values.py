"""What an object of the program's holds, read without running any code of its class."""

from __future__ import annotations

from collections.abc import Iterable
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

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


_KINDS = (
    (dict, dict.values),
    (list, list.__iter__),
    (tuple, tuple.__iter__),
    (set, set.__iter__),
    (frozenset, frozenset.__iter__),
)
