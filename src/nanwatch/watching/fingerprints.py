"""What weights, buffers and moments held when the program last wrote them, in two numbers each.

The sum of a tensor's bits as whole numbers, and the same weighted by place. If they differ later though
nobody has written, the memory was changed behind torch's back; and if the first differs by a power of
two, one bit was, and the second tells where. Taken after an update, within a small share of the run's
time.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nanwatch.tensors import is_finite
from nanwatch.watching.sentinel import weights_of
from nanwatch.watching.tape import version_of

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
SHARE = 0.005
"""Of the run's time."""

FIRST_SECONDS = 0.5
MOST_BYTES = 2**29
MOST_NOTICED = 4
PERIOD = 1021
"""Places are counted modulo this, so that the weighted sum stays within 64 bits."""


@dataclass(frozen=True)
class Fingerprint:
    tensor: weakref.ref[torch.Tensor]
    name: str
    step: int
    version: int
    address: int
    total: int
    weighted: int


@dataclass(frozen=True)
class Changed:
    """A tensor that is not what it was, though its version is."""

    name: str
    tensor: torch.Tensor
    step: int
    """After which it was still as the program left it."""
    difference: int
    """Of the sums of bits; plus or minus a power of two when one bit was turned over."""
    place: int | None
    """Of the one value that changed, modulo PERIOD; None when it cannot have been one."""


class Fingerprints:
    def __init__(self, first_seconds: float = FIRST_SECONDS, share: float = SHARE) -> None:
        self._first_seconds = first_seconds
        self._share = share
        self.taken: dict[int, Fingerprint] = {}
        self.bad_at_first: set[str] = set()
        """Names of weights and buffers that were not finite at the first call of their model."""
        self._models: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        """Those whose first call has been looked at."""
        self.noticed: list[Changed] = []
        """Single values found changed just before an update wrote over the evidence: the step in which such
        a value does its harm may come later."""
        self._began = time.perf_counter()
        self._spent = 0.0

    def model_called(self, model: nn.Module, step: int) -> None:
        """At its first call: what it holds, and whether that is finite."""
        if model in self._models or not self._affordable():
            return
        self._models.add(model)
        with self._timed():
            named = [*model.named_parameters(), *model.named_buffers()]
            self._take(((name.replace("_orig_mod.", ""), t) for name, t in named), step, first=True)

    def about_to_update(self) -> None:
        """Before an update, after which the old checksums say nothing any more."""
        if len(self.noticed) < MOST_NOTICED and self._affordable():
            with self._timed():
                found = [each for each in self.changed() if each.place is not None]
                self.noticed += found[: MOST_NOTICED - len(self.noticed)]

    def updated(self, optimizer: Any, step: int) -> None:
        """After an update: the parameters and the state it left."""
        if not self._affordable() or not any(p.is_cpu for p in weights_of(optimizer)):
            return
        with self._timed():
            names = {id(p): name for m in self._models for name, p in m.named_parameters()}
            tensors = []
            for parameter, state in optimizer.state.items():
                mine = names.get(id(parameter), "a parameter")
                if isinstance(state, dict):
                    tensors += [(f"{k} of {mine}", v) for k, v in state.items() if torch.is_tensor(v)]
            tensors += [(names.get(id(p), "a parameter"), p) for p in weights_of(optimizer)]
            self._take(tensors, step)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._spent += time.perf_counter() - began

    def _affordable(self) -> bool:
        elapsed = time.perf_counter() - self._began
        return self._spent <= self._first_seconds + self._share * elapsed

    def _take(self, tensors: Iterable[tuple[str, torch.Tensor]], step: int, first: bool = False) -> None:
        size = 0
        self.taken = {key: each for key, each in self.taken.items() if each.tensor() is not None}
        for name, tensor in tensors:
            if not _readable(tensor):
                continue
            size += tensor.numel() * tensor.element_size()
            if size > MOST_BYTES:
                break
            if first and tensor.is_floating_point() and not is_finite(tensor):
                self.bad_at_first.add(name)
            total, weighted = sums(tensor)
            self.taken[id(tensor)] = Fingerprint(
                weakref.ref(tensor), name, step, version_of(tensor), tensor.data_ptr(), total, weighted
            )

    def changed(self) -> list[Changed]:
        """Tensors whose memory differs from what the program's last write on record left there."""
        found = []
        for each in self.taken.values():
            tensor = each.tensor()
            if tensor is None or tensor.data_ptr() != each.address or version_of(tensor) != each.version:
                continue
            total, weighted = sums(tensor)
            if (total, weighted) == (each.total, each.weighted):
                continue
            difference = total - each.total
            place, rest = divmod(weighted - each.weighted, difference) if difference else (-1, 0)
            single = rest == 0 and 0 <= place < PERIOD
            found.append(Changed(each.name, tensor, each.step, difference, place if single else None))
        return found


def _readable(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and tensor.element_size() in WORDS
        and tensor.numel() > 0
    )


def sums(tensor: torch.Tensor) -> tuple[int, int]:
    """(sum of the bits, sum of bits times place), as whole numbers."""
    with torch.no_grad():
        words = tensor.detach().reshape(-1).view(WORDS[tensor.element_size()])
        total = int(words.sum(dtype=torch.int64))
        whole = len(words) // PERIOD * PERIOD
        columns = words[:whole].view(-1, PERIOD).sum(0, dtype=torch.int64)
        rest = words[whole:].to(torch.int64)
        weights = torch.arange(PERIOD, device=words.device)
        weighted = int((columns * weights).sum() + (rest * weights[: len(rest)]).sum())
    return total, weighted
