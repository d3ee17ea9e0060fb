"""Functions of torch with a wrapper around them, put on and taken off in any order."""

from __future__ import annotations

from types import ModuleType
from typing import Any


class Wrappers:
    """The wrappers that one owner has put on."""

    def __init__(self) -> None:
        self._put: list[tuple[Any, str, Any, Any]] = []

    def put(self, owner: Any, name: str, wrapper: Any) -> None:
        """Put `wrapper` in the place of `owner`'s attribute `name`."""
        original = owner.__dict__[name]
        function = _function(wrapper)
        function.__name__ = function.__qualname__ = name
        if isinstance(owner, ModuleType):
            function.__module__ = owner.__name__  # by which it is pickled
        function.__doc__ = getattr(original, "__doc__", None)
        function.__wrapped__ = original
        setattr(owner, name, wrapper)
        self._put.append((owner, name, wrapper, original))

    def take_off(self) -> None:
        """What lies under somebody else's wrapper stays until that one is taken off too; from now on it only
        hands on."""
        for owner, name, wrapper, original in reversed(self._put):
            _function(wrapper).nanwatch_is_done = True
            if owner.__dict__.get(name) is wrapper:
                setattr(owner, name, still_wanted(original))
        self._put.clear()


def still_wanted(original: Any) -> Any:
    """What lies under the wrappers that were taken off."""
    while getattr(_function(original), "nanwatch_is_done", False):
        original = _function(original).__wrapped__
    return original


def _function(wrapper: Any) -> Any:
    return wrapper.__func__ if isinstance(wrapper, (classmethod, staticmethod)) else wrapper
