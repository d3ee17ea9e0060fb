"""What a program does after an update, and must not do after one that was not made: it moves on its learning
rate, its loss scale and its averages. Until its next step these stand still, and random numbers are drawn
again from where the step began: as if the batch had never come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from nanwatch.tensors import is_finite
from nanwatch.watching.about_models import living
from nanwatch.watching.tape import Tape

if TYPE_CHECKING:
    from nanwatch.watching.watcher import Watcher


class Aftermath:
    """Of one update that was left out."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._still: dict[int, list[tuple[Any, str]]] = {}
        """id of the optimizer -> (object, method) that does nothing the next time it is called."""
        self._written: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """id -> a tensor that the program has changed since, and what it held."""

    def begins(self, optimizer: Optimizer, tape: Tape, updates: int) -> None:
        """`updates`: how many this optimizer has made while it was watched."""
        first = next((e for e in tape.entries if e.kind == "module" and e.rng is not None), None)
        if first is not None and first.rng is not None:
            first.rng.put_back()
        held = self._still.setdefault(id(optimizer), [])
        for scheduler in living(LRScheduler):
            if _innermost(getattr(scheduler, "optimizer", None)) is optimizer and _each_step(
                scheduler, updates
            ):
                held.append(_stand_still(scheduler, "step"))
        held += [_stand_still(average, "update_parameters") for average in living(AveragedModel)]
        self._watch_averages(optimizer)

    def step_begins(self, optimizer: Optimizer) -> None:
        """All is as usual again for this optimizer."""
        for thing, method in self._still.pop(id(optimizer), ()):
            thing.__dict__.pop(method, None)

    def model_called(self) -> None:
        """Averages of the weights that the program keeps by hand are as they were before the update."""
        self._watcher.recorder.on_write = None
        written, self._written = self._written, {}
        with torch.no_grad():
            for tensor, before in written.values():
                tensor.copy_(before)

    def over(self) -> None:
        self.model_called()
        for held in self._still.values():
            for thing, method in held:
                thing.__dict__.pop(method, None)
        self._still.clear()

    def _watch_averages(self, optimizer: Optimizer) -> None:
        """What is changed in place now and looks like a weight, but is none and no gradient: a moving average
        of them."""
        weights = [p for group in optimizer.param_groups for p in group["params"]]
        shapes = {(p.shape, p.dtype) for p in weights}
        others = {id(t) for p in weights for t in (p, p.grad) if t is not None}

        def on_write(tensor: torch.Tensor) -> None:
            known = id(tensor) in others or id(tensor) in self._written or tensor.is_inference()
            if not known and (tensor.shape, tensor.dtype) in shapes and is_finite(tensor):
                self._written[id(tensor)] = (tensor, tensor.detach().clone())

        self._watcher.recorder.on_write = on_write


def _innermost(optimizer: Any) -> Any:
    """The optimizer itself, where a framework has put another object around it."""
    for _ in range(3):
        inner = getattr(optimizer, "optimizer", None)
        if not isinstance(inner, Optimizer):
            break
        optimizer = inner
    return optimizer


def _each_step(scheduler: Any, updates: int) -> bool:
    """Whether the schedule goes by steps; one that goes by epochs has nothing to do with this batch."""
    calls = getattr(scheduler, "_step_count", 0) - 1
    return calls >= 0 and 2 * calls >= updates


def _stand_still(thing: Any, method: str) -> tuple[Any, str]:
    """The next call of this method does nothing."""

    def nothing(*args: Any, **kwargs: Any) -> None:
        thing.__dict__.pop(method, None)

    thing.__dict__[method] = nothing
    return thing, method
