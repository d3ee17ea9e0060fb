"""This thread stands still and looks: what of the step's memory changes all the same, others write."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from dataclasses import dataclass

import torch

from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.state import attached
from nanwatch.explain.text import Text
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite
from nanwatch.tensors.shared_mapping import is_shared_mapping
from nanwatch.watching.module_state import tensor_of
from nanwatch.watching.stack import is_library
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import tensors_in, version_of
from nanwatch.watching.torch_functions import written_to

NAME = "one-worker"
TITLE = Text(
    "watching whether somebody else writes what this step read",
    "观察是否有其他线程或进程在写这一步读取的内存",
)
CHANGED = Text("{what} changed while this thread stood still", "{what} 在本线程静止时发生了变化")
CHANGED_SINCE = Text(
    "{what} was written since this step read it, by no call of this thread",
    "{what} 在这一步读取之后被改写，但不是本线程的任何调用所为",
)
STILL = Text("nothing changed in {seconds:.1f} s", "{seconds:.1f} 秒内没有变化")
SECONDS = 0.8
PAUSE = 0.02
LARGEST = 64 * 2**20
"""Bytes of one tensor that are read at each look."""


@dataclass(frozen=True)
class Written:
    """Memory of this step that somebody else wrote."""

    name: str
    tensor: torch.Tensor
    while_waiting: bool
    """Seen to change, twice looked at; else only since the step read it."""


def applies(case: Case) -> bool:
    return bool(case.tape.entries) and (bool(others(case)) or bool(_written_since(case)))


def others(case: Case) -> list[str]:
    """Threads that run code of the program, processes it has started that share memory with it."""
    found = [t.name for t in threading.enumerate() if _runs_user_code(t)]
    noted = getattr(case.trouble, "threads", ())  # those that were alive when the step failed
    found += [name for name in noted if name not in found]
    started = [p.name for p in multiprocessing.active_children()]
    return found + (started if started and any(_shared(t) for _, t in _read(case)) else [])


def _shared(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and (tensor.is_shared() or is_shared_mapping(tensor))


def _runs_user_code(thread: threading.Thread) -> bool:
    if thread is threading.current_thread() or thread.ident is None:
        return False
    frame = sys._current_frames().get(thread.ident)
    while frame is not None:
        if not is_library(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def run(case: Case) -> Outcome:
    since = _written_since(case)
    if since:
        return Outcome(None, CHANGED_SINCE.say(what=since[0].name), since)
    watched = [(name, tensor, _reading(tensor)) for name, tensor in _read(case)]
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        time.sleep(PAUSE)
        changed = [Written(n, t, True) for n, t, before in watched if _reading(t) != before]
        if changed:
            return Outcome(None, CHANGED.say(what=changed[0].name), changed)
    return Outcome(None, STILL.say(seconds=SECONDS), [])


def written_by_others(case: Case) -> list[Written]:
    """What of the step's memory somebody else has written, or still writes."""
    return [w for w in case.outcome(NAME).value or [] if isinstance(w, Written)]


def _read(case: Case) -> list[tuple[str, torch.Tensor]]:
    """What the step read and did not make: weights, buffers, the batch, whatever its calls were given."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for model in case.models:
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            found.setdefault(key_of(tensor), (name.replace("_orig_mod.", ""), tensor))
    for held in attached(case):
        found.setdefault(held.key, (held.name, held.tensor))
    for entry in case.tape.entries:
        for tensor, _ in entry.versions:
            found.setdefault(key_of(tensor), (_described(tensor), tensor))
    return [(n, t) for n, t in found.values() if measurable(t) and t.numel() * t.element_size() <= LARGEST]


def _described(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _reading(tensor: torch.Tensor) -> tuple[int, int]:
    """Version and checksum: a write through NumPy or from another process moves only the second."""
    return version_of(tensor), checksum(tensor)


def checksum(tensor: torch.Tensor) -> int:
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
    values = tensor.detach().contiguous().flatten()
    return int(values.view(whole[values.element_size()]).sum(dtype=torch.int64))


def _written_since(case: Case) -> list[Written]:
    """By what was recorded: memory with another version than when it was read and no write on the tape; a
    weight that the birth op was given and that is another now, though no update came between."""
    return [*_by_version(case), *_by_birth(case), *_by_first_look(case)]


def _by_version(case: Case) -> list[Written]:
    written: set[int] = set()
    for entry in case.tape.entries:
        if entry.kind == "write" or entry.overwritten or entry.kind == "module":
            given = (
                written_to(entry.args, entry.kwargs) if entry.kind == "write" else (entry.args, entry.kwargs)
            )
            written |= (
                {key_of(t) for t in tensors_in(given)}
                if entry.kind == "write" or entry.overwritten
                else set()
            )
    found = []
    for entry in case.tape.entries:
        for tensor, version in entry.versions:
            if version_of(tensor) == version or key_of(tensor) in written or tensor.requires_grad:
                continue
            if (id(tensor), version) not in case.tape.saved:
                found.append(Written(_described(tensor), tensor, False))
    return found


def _by_birth(case: Case) -> list[Written]:
    """The birth op's copies of its operands, against the weights and buffers they are copies of."""
    birth = case.birth
    if birth is None or case.phase not in ("forward", "loss") or birth.op.step != case.trouble.step:
        return []
    keys = {o.numbers.name: o.key for o in birth.op.inputs}
    state = {
        key_of(t): (n.replace("_orig_mod.", ""), t)
        for m in case.models
        for n, t in [*m.named_parameters(), *_steady_buffers(case, m)]
    }
    found = []
    for name, was in birth.tensors.items():
        known = state.get(keys.get(name, 0))
        if known is None or known[1].numel() != was.numel() or known[1].dtype != was.dtype:
            continue
        if checksum(known[1]) != checksum(was):  # whatever way it was laid out: transposed, reshaped
            found.append(Written(known[0], known[1], False))
    return found


def _steady_buffers(case: Case, model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """The buffers that calling the model does not change."""
    changing = {id(tensor_of(owner, name)) for e in case.model_calls for owner, name, _ in e.buffers}
    return [(n, b) for n, b in model.named_buffers() if id(b) not in changing]


def _by_first_look(case: Case) -> list[Written]:
    """Against what was read when the step was found to be bad, before it was replayed. A replay puts back
    what it writes, but the version stays where it took it: the values count."""
    first = getattr(case.trouble, "readings", None) or {}
    found = []
    for name, tensor in _read(case):
        before = first.get(id(tensor))
        if before is not None and before[1] != checksum(tensor):
            found.append(Written(name, tensor, True))
    return found


def finite_now(written: Written) -> bool:
    return bool(is_finite(written.tensor))
