"""What a program keeps in its weights on purpose: a score of -inf for what a CRF forbids, NaN in a row that
nobody may read, memory that is not filled yet."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from nanwatch.tensors import is_finite, norms_by_device
from nanwatch.tensors.rows import PLAIN_TYPES
from nanwatch.watching.storages import key_of


class Bad(NamedTuple):
    places: torch.Tensor
    of_copies_too: bool
    """What has been made of it may be bad there, too."""


_bad_at_first = WeakTensorKeyDictionary()
"""A weight or buffer that was not finite before the first update, or what an update has left infinite on
purpose -> where it was not."""


def note_before_training(tensors: Iterable[torch.Tensor], of_copies_too: bool = True) -> None:
    """Before the first update: one pass over them. What nothing reads may stay as bad as it is then; what is
    read shows in the loss."""
    plain = [t for t in tensors if _is_plain(t)]
    if all(map(math.isfinite, map(float, norms_by_device([t.detach() for t in plain])))):
        return
    for tensor in plain:
        if not is_finite(tensor) and tensor not in _bad_at_first:
            _bad_at_first[tensor] = Bad(~torch.isfinite(tensor.detach()), of_copies_too)


def note_left_on_purpose(tensors: Iterable[torch.Tensor]) -> None:
    """Weights and what an optimizer keeps, after an update in which nothing went bad: their infinities are
    meant."""
    for tensor in filter(_is_plain, tensors):
        values = tensor.detach()
        if not is_finite(values) and not bool(values.isnan().any()):
            _bad_at_first[tensor] = Bad(values.isinf(), of_copies_too=True)


def forget() -> None:
    """The session is over."""
    _bad_at_first.clear()


def _is_plain(tensor: torch.Tensor) -> bool:
    if type(tensor) not in PLAIN_TYPES or tensor.layout is not torch.strided or tensor.is_meta:
        return False
    return tensor.is_floating_point() and not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def was_so_before(tensor: torch.Tensor) -> bool:
    """Whether it is bad only where it was before any update, or a weight of its shape, of which it is a
    copy."""
    known = tuple(_bad_at_first.data.items())  # in one go: a thread asks, too
    alike = [(ref(), found) for ref, found in known if found.places.shape == tensor.shape]
    places = [
        found.places
        for noted, found in alike
        if found.of_copies_too or (noted is not None and key_of(noted) == key_of(tensor))
    ]
    if not places or not tensor.is_floating_point():
        return False
    bad = ~torch.isfinite(tensor.detach())
    return any(not bool((bad & ~place.to(bad.device)).any()) for place in places)


def was_infinite_before(weight: torch.Tensor) -> bool:
    """Whether no update has made the infinities that are in it: there is nothing to learn there, and its
    gradient is 0."""
    gradient = weight.grad
    if gradient is None or gradient.layout is not torch.strided or gradient.shape != weight.shape:
        return False
    values = weight.detach()
    return not bool(values.isnan().any()) and not bool(gradient[values.isinf()].any())
