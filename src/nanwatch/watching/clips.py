"""The program clips its gradients: the norm that this takes serves as the sentinel's, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from nanwatch.tensors import norm_and_verdict
from nanwatch.watching.sentinel import total_norm

if TYPE_CHECKING:
    from nanwatch.watching.watcher import Watcher


class Clips:
    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def clipped(self, parameters: Any, norm: torch.Tensor, again: Callable[[], Any]) -> None:
        self.not_clipped(again)
        tensors = [parameters] if isinstance(parameters, torch.Tensor) else parameters
        self._watcher.now.clip = (frozenset(map(id, tensors)), norm.detach())

    def not_clipped(self, again: Callable[[], Any]) -> None:
        """Bad gradients stay as they are; good ones in their place are clipped."""
        self._watcher.event("clip")
        self._watcher.now.clipping.append(again)

    def by_value_begins(self, parameters: Any, again: Callable[[], Any]) -> None:
        """It makes a large number of an Inf: look before it."""
        tensors = [parameters] if isinstance(parameters, torch.Tensor) else parameters
        gradients = [g for p in tensors if (g := p.grad) is not None]
        if gradients:
            self.clipped(tensors, total_norm(norm_and_verdict(gradients)), again)
            self._watcher.now.clipped_by_value = True

    def norm_for(self, optimizer: Optimizer) -> torch.Tensor | None:
        """The one that clipping has already computed, if it was over all of this optimizer's gradients."""
        if self._watcher.now.clip is None:
            return None
        covered, norm = self._watcher.now.clip
        mine = (id(p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None)
        return norm if all(p in covered for p in mine) else None
