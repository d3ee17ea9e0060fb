"""Run a recorded step again, under a tracer, and leave no trace in the program.

Gradients are computed with `torch.autograd.grad`, so that nothing is accumulated and no hook of a data
parallel wrapper fires. Buffers are swapped, not written. Random state and everything else is put back.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from nanwatch.messages import say
from nanwatch.replay.trace import Op
from nanwatch.replay.tracer import OpTracer, measurable
from nanwatch.watching.about_models import leaves_of
from nanwatch.watching.module_calls import ModuleCalls, Scope
from nanwatch.watching.recorder import MISSING
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Context, Entry, Rng, Tape, map_tensors, tensors_in, version_of
from nanwatch.watching.torch_functions import changes_its_input, written_to


@dataclass
class Again:
    """What a replay gave."""

    tracer: OpTracer
    losses: list[torch.Tensor] = field(default_factory=list)
    gradients: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """(parameter, its gradient)."""
    outputs: list[torch.Tensor] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: Exception | None = None
    differs: bool = False
    """A model gave something else than it gave to the program."""


def run_again(
    tape: Tape, earlier: tuple[Tape, ...], calls: ModuleCalls, without_scale: bool = False
) -> Again:
    """Forward, loss and backward of `tape`, traced. `without_scale`: as if no GradScaler had been there."""
    scope = Scope()
    tracer = OpTracer(scope)
    tracer.step = tape.step
    again = Again(tracer, notes=list(tape.notes))
    entries = _needed_entries(tape, earlier)
    player = _Player(tape, tracer, again, without_scale)
    was, calls.handler = calls.handler, scope.follow
    try:
        anomaly = torch.autograd.set_detect_anomaly(False)  # the program's own would end the replay early
        with _everything_put_back(entries), _eager(), torch.enable_grad(), anomaly:
            player.play(entries)
    finally:
        calls.handler = was
    return again


def call_again(entry: Entry, step: int, after_root: bool = False) -> Op | None:
    """One call of the tape, traced, on copies of its tensors: the op in it that first made a bad value."""
    tracer = OpTracer(Scope())
    tracer.step = step
    tracer.base = entry.stack
    tracer.after_root = after_root
    copies: dict[int, torch.Tensor] = {}

    def copy_of(tensor: torch.Tensor) -> torch.Tensor:
        return copies.setdefault(id(tensor), tensor.detach().clone())

    tracer.boundary = sys._getframe()
    rng = Rng.now()
    try:
        args, kwargs = map_tensors(entry.args, copy_of), map_tensors(entry.kwargs, copy_of)
        with torch.no_grad(), tracer:
            entry.call(*args, **kwargs)
    except Exception:
        return None
    finally:
        rng.put_back()
    return next((op for op in tracer.trace.ops.values() if op.makes_nan or op.makes_inf), None)


def _needed_entries(tape: Tape, earlier: tuple[Tape, ...]) -> list[Entry]:
    """The tape, and from earlier ones what its graph still hangs on (a GAN's generator output)."""
    entries = list(tape.entries)
    for older in reversed(earlier):
        wanted = {
            id(t)
            for entry in entries
            for t in tensors_in((entry.args, entry.kwargs))
            if _has_history(t) and id(t) in older.made
        }
        if not wanted:
            continue
        kept = []
        for entry in reversed(older.entries):
            if entry.kind != "backward" and any(id(t) in wanted for t in tensors_in(entry.outputs)):
                kept.append(entry)
                wanted |= {id(t) for t in tensors_in((entry.args, entry.kwargs)) if _has_history(t)}
        entries = kept[::-1] + entries
    return entries


@contextlib.contextmanager
def _everything_put_back(entries: list[Entry]) -> Iterator[None]:
    """Buffers and attributes as they were before the step, for the time of the replay; then all as it is."""
    rng = Rng.now()
    swapped: list[tuple[nn.Module, str, torch.Tensor | None]] = []
    flags: list[tuple[nn.Module, bool]] = []
    done: set[tuple[int, str]] = set()
    replaced: list[tuple[nn.Module, str, Any]] = []
    try:
        for entry in entries:
            if isinstance(entry.call, nn.Module):
                flags += [(m, m.training) for m in entry.call.modules()]
            for owner, name, before in entry.buffers:
                if (id(owner), name) not in done:
                    done.add((id(owner), name))
                    swapped.append((owner, name, owner._buffers.get(name)))
                    owner._buffers[name] = before.clone()
            for owner, name, value in entry.attributes:
                if (id(owner), name) not in done:
                    done.add((id(owner), name))
                    replaced.append((owner, name, owner.__dict__.get(name, MISSING)))
                    _set_attribute(owner, name, value)
        yield
    finally:
        for owner, name, value in swapped:
            owner._buffers[name] = value
        for owner, name, value in replaced:
            _set_attribute(owner, name, value)
        for module, training in flags:
            module.training = training
        rng.put_back()


def _set_attribute(owner: nn.Module, name: str, value: Any) -> None:
    if value is MISSING:
        owner.__dict__.pop(name, None)
    else:
        owner.__dict__[name] = value


@contextlib.contextmanager
def _eager() -> Iterator[None]:
    """Compiled models run their eager code, so that every op has its line."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


class _Player:
    """Makes the calls of a tape again, each tensor replaced by its counterpart in the replay."""

    def __init__(self, tape: Tape, tracer: OpTracer, again: Again, without_scale: bool) -> None:
        self._tape = tape
        self._tracer = tracer
        self._again = again
        self._without_scale = without_scale
        self._counterpart: dict[int, Any] = {}
        self._outside_memory = {key_of(t) for t in [*tape.used.values(), *tape.made.values()]}

    def play(self, entries: list[Entry]) -> None:
        self._tracer.boundary = sys._getframe()
        self._note_changes(entries)
        for entry in entries:
            try:
                self._play_one(entry)
            except Exception as error:
                self._again.error = error
                return

    def _note_changes(self, entries: list[Entry]) -> None:
        for entry in entries:
            for tensor, version in entry.versions:
                if (
                    version_of(tensor) != version
                    and (id(tensor), version) not in self._tape.saved
                    and entry.kind != "write"
                ):
                    name = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
                    sentence = say("watch.operand_changed", what=name)
                    if sentence not in self._again.notes:
                        self._again.notes.append(sentence)

    def _play_one(self, entry: Entry) -> None:
        if not self._needed(entry):
            return
        self._use_values_of(entry)
        args = map_tensors(entry.args, self._stand_in)
        kwargs = map_tensors(entry.kwargs, self._stand_in)
        if changes_its_input(entry.call, kwargs) and self._would_touch_the_program(args, kwargs):
            return
        if entry.rng is not None:
            entry.rng.put_back()
        self._tracer.base = entry.stack
        self._tracer.phase = entry.phase if isinstance(entry.call, nn.Module) else "outside"
        with _context(entry.context):
            outputs = self._call(entry, args, kwargs)
        self._pair(entry, outputs)
        if entry.kind == "module":
            self._again.outputs = list(tensors_in(outputs))
            self._tracer.after_root = True
            self._compare(entry, self._again.outputs)
        elif getattr(entry.call, "__name__", "") == "grad":
            self._again.gradients += [(t, t) for t in tensors_in(outputs)]

    def _use_values_of(self, entry: Entry) -> None:
        """Tensors that were overwritten since this call: the copy of what they held then."""
        for tensor, version in entry.versions:
            copy = self._tape.saved.get((id(tensor), version))
            if copy is not None:
                self._counterpart[id(tensor)] = copy.requires_grad_(tensor.requires_grad)

    def _needed(self, entry: Entry) -> bool:
        """Models and backward run again, and what hangs on them. Data preparation does not: what it made is
        on the tape, and making it twice might touch what belongs to the program."""
        if entry.kind in ("module", "backward"):
            return True
        if entry.kind == "write" or entry.kwargs.get("generator") is not None:
            return False
        if any(id(t) in self._counterpart for t in tensors_in((entry.args, entry.kwargs))):
            return True
        return entry.context.grad and any(_has_history(t) for t in tensors_in(entry.outputs))

    def _call(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if entry.kind == "backward":
            return self._backward(entry, args, kwargs)
        if isinstance(entry.call, nn.Module):
            if entry.call.training != entry.training:
                entry.call.train(entry.training)
            args = map_tensors(args, _copy_of) if entry.overwritten else args
            call: Any = entry.call
            if type(call).__name__ == "DistributedDataParallel":
                call = call.module
        else:
            call = entry.call
        with self._tracer:
            return call(*args, **kwargs)

    def _backward(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensors = list(tensors_in(args[0] if args else kwargs.get("tensors")))
        given = args[1] if len(args) > 1 else kwargs.get("grad_tensors")
        seeds = None if given is None else list(tensors_in(given)) or None
        if self._without_scale and entry.unscaled is not None:
            tensors, seeds = [self._stand_in(entry.unscaled)], None
        self._again.losses += [self._stand_in(entry.unscaled)] if entry.unscaled is not None else tensors
        wanted = list(tensors_in(kwargs.get("inputs"))) or leaves_of(tensors)
        wanted = list({id(t): t for t in wanted}.values())
        if not wanted:
            return
        create = bool(kwargs.get("create_graph") or (len(args) > 3 and args[3]))
        with self._tracer:
            found = torch.autograd.grad(
                tensors, wanted, seeds, retain_graph=True, create_graph=create, allow_unused=True
            )
        self._again.gradients += [(p, g) for p, g in zip(wanted, found, strict=True) if g is not None]

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self._counterpart.get(id(tensor), tensor)
        if found is tensor and _has_history(tensor):
            return self._cut_off(tensor)
        return found

    def _cut_off(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor whose own history is not on the tape: its value, with a fresh end."""
        stand_in = tensor.detach().requires_grad_(tensor.requires_grad)
        self._counterpart[id(tensor)] = stand_in
        return stand_in

    def _would_touch_the_program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return any(key_of(t) in self._outside_memory for t in tensors_in(written_to(args, kwargs)))

    def _compare(self, entry: Entry, new: list[torch.Tensor]) -> None:
        """A model that keeps state nobody recorded gives something else when it is called again: say so."""
        same = len(entry.made) == len(new) and all(
            version_of(was) != version or _alike(was, now)
            for (was, version), now in zip(entry.made, new, strict=True)
        )
        if not same and not self._again.differs:
            self._again.differs = True
            self._again.notes.append(say("watch.replay_differs"))

    def _pair(self, entry: Entry, replayed: Any) -> None:
        """What the program got from this call is stood in for by what the replay got. Where the two differ
        though nothing changed since (unrecorded randomness), the record is believed."""
        new = list(tensors_in(replayed))
        if len(entry.made) != len(new):
            return
        for (was, version), now in zip(entry.made, new, strict=True):
            if now.requires_grad or version_of(was) != version or _equal(was, now):
                self._counterpart[id(was)] = now


def _has_history(tensor: torch.Tensor) -> bool:
    """Whether autograd knows how the tensor came about."""
    try:
        return tensor.requires_grad and tensor.grad_fn is not None
    except RuntimeError:  # a view whose base was changed in place without autograd
        return False


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype or a.layout is not torch.strided:
        return a.layout is not torch.strided
    return bool(torch.equal(a, b)) or bool(((a == b) | ((a != a) & (b != b))).all())


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal but for the rounding of devices that add in any order."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.layout is not torch.strided or not measurable(a):
        return True
    return bool(torch.allclose(a.detach(), b.detach(), rtol=1e-2, atol=1e-3, equal_nan=True))


def _copy_of(tensor: torch.Tensor) -> torch.Tensor:
    return (
        tensor.detach().clone().requires_grad_(tensor.requires_grad) if not _has_history(tensor) else tensor
    )


@contextlib.contextmanager
def _context(context: Context) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if context.inference:
            stack.enter_context(torch.inference_mode())
        stack.enter_context(torch.set_grad_enabled(context.grad))
        for device, enabled, dtype in context.autocast:
            stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
        yield
