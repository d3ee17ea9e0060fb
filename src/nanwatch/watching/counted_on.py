"""A fused optimizer counts a step before it makes it, and counts back where `found_inf` says that it was
none: one more op over all its counters in every step, for the sake of the bad ones.

While its step is under way that op is left out if it would only follow our own verdict, and made up for when
the verdict is known to be bad, or when somebody asks for the optimizer's state.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nanwatch.tensors.plain_dispatch import plain_dispatch

NAME = "_foreach_sub_"


class CountedOn:
    """The counters that one step has counted on, though it may turn out to be none."""

    __slots__ = ("_counters", "_original", "_verdict", "_wrapper")

    def __init__(self) -> None:
        self._counters: list[Any] = []
        self._wrapper: Any = None

    def begins(self, verdict: Tensor) -> None:
        """The optimizer has been given this as `found_inf`, and is about to make its step."""
        self._verdict, self._original, self._wrapper = verdict, getattr(torch, NAME), self._subtract
        setattr(torch, NAME, self._wrapper)

    def ends(self) -> None:
        wrapper, self._wrapper = self._wrapper, None
        if wrapper is not None and getattr(torch, NAME) is wrapper:
            setattr(torch, NAME, self._original)

    def _subtract(self, counters: Any, others: Any, *args: Any, **kwargs: Any) -> Any:
        ours = self._wrapper is not None and type(others) is list and others and others[0] is self._verdict
        if not ours or args or kwargs:
            return self._original(counters, others, *args, **kwargs)
        self._counters.append(counters)
        return None

    def count_back(self) -> None:
        """The step was none."""
        counters, self._counters = self._counters, []
        with torch.no_grad(), plain_dispatch():
            for each in counters:
                torch._foreach_sub_(each, 1)
