"""What a bad step's memory holds when it is found to be bad, and who else is there: looked at again later, it
shows what somebody else wrote. Costs one reading of the weights and the batch, on a bad step only."""

from __future__ import annotations

import contextlib
import sys
import threading

import torch
from torch import nn

from nanwatch.watching.attached import attached_to
from nanwatch.watching.stack import Stack, is_library
from nanwatch.watching.storages import Storages, key_of
from nanwatch.watching.tape import Tape, version_of
from nanwatch.watching.trouble import Trouble

LARGEST = 64 * 2**20
"""Bytes of one tensor that are read."""
Reading = tuple[int, int]
"""(version, checksum): a write through NumPy or from another process moves only the second."""

_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


def what_it_read(tape: Tape, arrivals: Storages[Stack] | None = None) -> list[tuple[str, torch.Tensor]]:
    """What the step read and did not make: weights, buffers, the batch, whatever its calls were given."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for entry in tape.entries:
        if isinstance(entry.call, nn.Module):
            for name, tensor in [*entry.call.named_parameters(), *entry.call.named_buffers()]:
                found.setdefault(key_of(tensor), (name.replace("_orig_mod.", ""), tensor))
            for each in attached_to(entry.call, arrivals):
                found.setdefault(key_of(each.tensor), (each.name, each.tensor))
    for entry in tape.entries:
        for tensor, _ in entry.versions:
            found.setdefault(key_of(tensor), (described(tensor), tensor))
    return [(name, tensor) for name, tensor in found.values() if _readable(tensor)]


def described(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def reading(tensor: torch.Tensor) -> Reading:
    return version_of(tensor), checksum(tensor)


def checksum(tensor: torch.Tensor) -> int:
    """The sum of all bits as whole numbers: the same for every layout of the same values."""
    values = tensor.detach().contiguous().flatten()
    return int(values.view(_WHOLE[values.element_size()]).sum(dtype=torch.int64))


def readings(tape: Tape, arrivals: Storages[Stack] | None = None) -> dict[int, Reading]:
    """id of a tensor -> its reading now."""
    return {id(tensor): reading(tensor) for _, tensor in what_it_read(tape, arrivals)}


def look_at(trouble: Trouble) -> None:
    """Write down what may change while the step is looked into."""
    if trouble.scaler_search:
        return
    trouble.threads = other_threads()
    with contextlib.suppress(Exception):  # a tensor that cannot be read has no reading
        trouble.readings = readings(trouble.tape, trouble.arrivals)


def other_threads() -> tuple[str, ...]:
    """The names of the threads, other than this one, that run code of the program."""
    return tuple(t.name for t in threading.enumerate() if _runs_user_code(t))


def _runs_user_code(thread: threading.Thread) -> bool:
    if thread is threading.current_thread() or thread.ident is None:
        return False
    frame = sys._current_frames().get(thread.ident)
    while frame is not None:
        if not is_library(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def _readable(tensor: torch.Tensor) -> bool:
    plain = tensor.layout is torch.strided and tensor.device.type != "meta" and not tensor.is_quantized
    return plain and 0 < tensor.numel() * tensor.element_size() <= LARGEST
