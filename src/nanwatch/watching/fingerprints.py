"""What weights, buffers and moments held when the program last wrote them, in two numbers each.

If the checksums of a tensor differ later though nobody has written, the memory was changed behind torch's
back; and they tell which value it was, and what it was before. Taken after an update and looked at before the
next, within a small share of the run's time.
"""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nanwatch.tensors import is_finite
from nanwatch.tensors.checksums import WORDS, Checksum, Rows, checksums_of, moved, width_of
from nanwatch.watching.sentinel import weights_of
from nanwatch.watching.turned_bits import Flipped, flipped_at, no_program_writes

SHARE = 0.001
"""Of the run's time."""

FIRST_SECONDS = 0.5
MOST_BYTES = 2**29
MOST_NOTICED = 4
FEWEST_VALUES = 16
"""Among fewer values that did not change, one that did is nothing special."""


@dataclass(slots=True)
class Fingerprint:
    tensor: weakref.ref[torch.Tensor]
    name: str
    address: int
    values: int
    words: int
    width: int
    """Bytes of a word."""
    is_buffer: bool = False
    step: int = 0
    version: int = 0
    sums: Checksum = (0, 0)


@dataclass(frozen=True)
class Changed:
    """A tensor that is not what it was, though its version is."""

    name: str
    tensor: torch.Tensor
    step: int
    """After which it was still as the program left it."""
    difference: int
    """Of the sums of bits; plus or minus a power of two when one bit was turned over."""
    one: Flipped | None
    """The one value that changed; None when it cannot have been one."""


class Fingerprints:
    def __init__(self, first_seconds: float = FIRST_SECONDS, share: float = SHARE) -> None:
        self._first_seconds = first_seconds
        self._share = share
        self.taken: dict[int, Fingerprint] = {}
        self.bad_at_first: set[str] = set()
        """Names of weights and buffers that were not finite at the first call of their model."""
        self._names: dict[int, str] = {}
        self.due = False
        """Taken after the last update: to be compared before the next."""
        self.noticed: list[Changed] = []
        """Single values found changed just before an update wrote over the evidence: the step in which such
        a value does its harm may come later."""
        self._began = time.perf_counter()
        self._spent = 0.0
        self.rest_until = 0.0
        """The moment from which on more can be afforded: one comparison for those who ask in every step."""

    def model_called(self, model: nn.Module, step: int) -> bool:
        """At its first call: what it holds, and whether that is finite. Whether there was time for it."""
        if not self.affordable():
            return False
        with self._timed():
            named = [(name.replace("_orig_mod.", ""), p) for name, p in model.named_parameters()]
            self._names.update((id(p), name) for name, p in named)
            self._take(named, step, first=True)
            buffers = [(name.replace("_orig_mod.", ""), b) for name, b in model.named_buffers()]
            self._take(buffers, step, first=True)
            for _, buffer in buffers:
                if id(buffer) in self.taken:
                    self.taken[id(buffer)].is_buffer = True
            self.due = True
        return True

    def about_to_update(self, step: int) -> Changed | None:
        """Before an update, after which the old checksums say nothing any more: a value that a fault of the
        memory has changed."""
        self.due = False
        with self._timed():
            found, alike = self._compared(step)
            single = [each for each in found if each.one is not None]
            self.noticed += single[: MOST_NOTICED - len(self.noticed)]
            return _turned_over(found, alike, self.taken)

    def updated(self, optimizer: Any, step: int) -> None:
        """After an update: the parameters and the state it left. Asked only when `affordable`."""
        if not any(group["params"][0].is_cpu for group in optimizer.param_groups if group["params"]):
            return
        with self._timed():
            tensors: list[tuple[Any, torch.Tensor]] = []
            for parameter, state in optimizer.state.items():
                if isinstance(state, dict):
                    tensors += [((k, parameter), v) for k, v in state.items() if torch.is_tensor(v)]
            tensors += [((None, p), p) for p in weights_of(optimizer)]
            self._take(tensors, step)
            self.due = True

    def accept(self, changed: Changed) -> None:
        """It is known and stays: from now on this is what the tensor holds."""
        self.taken.pop(id(changed.tensor), None)
        self._take([(changed.name, changed.tensor)], changed.step)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.thread_time()  # what others do on a busy machine is not counted
        yield
        self._spent += time.thread_time() - began
        beyond = self._spent - self._first_seconds
        self.rest_until = (
            0.0 if beyond <= 0 else self._began + beyond / self._share if self._share else math.inf
        )

    def was_off(self, seconds: float) -> None:
        """A time that does not count."""
        self._began += seconds
        self.rest_until += seconds

    def affordable(self) -> bool:
        return time.perf_counter() >= self.rest_until

    def _take(self, tensors: Iterable[tuple[Any, torch.Tensor]], step: int, first: bool = False) -> None:
        """`tensors` with their names, or with what their name is made of."""
        size = 0
        new = False
        taken: list[Fingerprint] = []
        held: list[torch.Tensor] = []
        for name, tensor in tensors:
            known = self.taken.get(id(tensor))
            if known is None or known.tensor() is not tensor or tensor.data_ptr() != known.address:
                if not _readable(tensor):
                    continue
                known = self._new(name, tensor)
                new = True
            size += known.words * known.width
            if size > MOST_BYTES:
                break
            if first and tensor.is_floating_point() and not is_finite(tensor):
                self.bad_at_first.add(known.name)
            taken.append(known)
            held.append(tensor)
        for known, tensor, sums in zip(taken, held, _sums(taken, held), strict=True):
            known.step, known.version, known.sums = step, tensor._version, sums
        if new:
            self.taken = {key: each for key, each in self.taken.items() if each.tensor() is not None}

    def _new(self, name: Any, tensor: torch.Tensor) -> Fingerprint:
        if not isinstance(name, str):
            kind, parameter = name
            mine = self._names.get(id(parameter), "a parameter")
            name = mine if kind is None else f"{kind} of {mine}"
        width = width_of(tensor)
        words = tensor.numel() * (tensor.element_size() // width)
        known = Fingerprint(weakref.ref(tensor), name, tensor.data_ptr(), tensor.numel(), words, width)
        self.taken[id(tensor)] = known
        return known

    def changed(self) -> list[Changed]:
        """Tensors whose memory differs from what the program's last write on record left there."""
        return self._compared(None)[0]

    def _compared(self, step: int | None) -> tuple[list[Changed], int]:
        """The tensors that have changed, and how many values of parameters and moments have not. `step`: in
        which those that did not change were looked at."""
        known: list[Fingerprint] = []
        tensors: list[torch.Tensor] = []
        for each in self.taken.values():
            tensor = each.tensor()
            if tensor is None or tensor._version != each.version or tensor.data_ptr() != each.address:
                continue
            known.append(each)
            tensors.append(tensor)
        found, alike = [], 0
        for each, tensor, now in zip(known, tensors, _sums(known, tensors), strict=True):
            if now != each.sums:
                found.append(_changed(each, tensor, now))
                continue
            alike += 0 if each.is_buffer else each.values
            if step is not None and each.step < step - 1:
                each.step = step - 1
        return found, alike


def _sums(known: list[Fingerprint], tensors: list[torch.Tensor]) -> list[Checksum]:
    columns = [e.address for e in known], [e.words for e in known], [e.width for e in known]
    return checksums_of(Rows(tensors, *columns))


def _changed(each: Fingerprint, tensor: torch.Tensor, now: Checksum) -> Changed:
    difference, weighted = moved(each.sums, now)
    place, rest = divmod(weighted, difference) if difference else (-1, 0)
    words = WORDS[tensor.element_size()]
    single = rest == 0 and 0 <= place < each.words
    one = flipped_at(tensor, place, difference, words) if single else None
    return Changed(each.name, tensor, each.step, difference, one)


def _turned_over(found: list[Changed], alike: int, taken: dict[int, Fingerprint]) -> Changed | None:
    """The one value that changed, if a fault did it: among many that stayed, and in memory of this process
    alone. What a model's own call changes (statistics) says nothing for or against."""
    written = [each for each in found if not taken[id(each.tensor)].is_buffer]
    turned = [
        each
        for each in found
        if each.one is not None
        and no_program_writes(each.one, each.tensor.dtype)
        and not each.tensor.is_shared()
    ]
    if len(turned) != 1 or alike < FEWEST_VALUES or any(each is not turned[0] for each in written):
        return None
    return turned[0]


def _readable(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and tensor.element_size() in WORDS
        and tensor.numel() > 0
        and tensor.data_ptr() != 0
        and not tensor.is_inference()
    )
