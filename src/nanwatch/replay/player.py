"""Makes the calls of a tape again, one by one.

Gradients are computed with `torch.autograd.grad`, so that nothing is accumulated and no hook of a data
parallel wrapper fires.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from nanwatch.messages import say
from nanwatch.replay.inner_losses import noting_inner_losses
from nanwatch.replay.kept_elsewhere import KeptElsewhere
from nanwatch.replay.likeness import alike, equal
from nanwatch.replay.needed_entries import has_history
from nanwatch.replay.tracer import OpTracer, measurable
from nanwatch.replay.untouched import Untouched
from nanwatch.replay.weights_in_between import WeightsInBetween
from nanwatch.tensors import is_finite
from nanwatch.watching.about_models import leaves_of
from nanwatch.watching.given_gradients import judged, seeds_of
from nanwatch.watching.randomness import put_state
from nanwatch.watching.ranks import NeedsOtherRanks, is_sharded
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Context, Entry, Tape, given_to, gone, map_tensors, tensors_in, version_of
from nanwatch.watching.torch_functions import changes_its_input, written_to

if TYPE_CHECKING:
    from nanwatch.replay.again import Again, Changes


class CannotReplayError(Exception):
    """What a call needs is not there any more."""


class Player:
    """Makes the calls of a tape again, each tensor replaced by its counterpart in the replay."""

    def __init__(
        self,
        tape: Tape,
        tracer: OpTracer,
        again: Again,
        untouched: Untouched,
        without_scale: bool,
        through_saving: bool,
        with_hooks: bool,
        changes: Changes,
    ) -> None:
        self._changes = changes
        self._tape = tape
        self._tracer = tracer
        self._again = again
        self._untouched = untouched
        self._without_scale = without_scale
        self._through_saving = through_saving
        self._with_hooks = with_hooks
        self._differentiates = any(e.kind == "backward" for e in tape.entries)
        self._differentiated: list[Entry] = []
        """The backwards that gave gradients."""
        self._drawing = False
        """A random state has been put back."""
        self._drawn_from: set[int] = set()
        """Generators of the program that have been put back."""
        self._counterpart = again.counterpart
        self._kept = KeptElsewhere()
        self.weights: WeightsInBetween | None = None
        """Those to be changed between the calls, as the program has."""
        self._outside_memory = {key_of(t) for t in [*tape.used.values(), *tape.made.values()]}

    @contextlib.contextmanager
    def _tracing(self) -> Iterator[None]:
        with self._tracer, (self._changes.around or contextlib.nullcontext)():
            yield

    def play(self, entries: list[Entry]) -> None:
        self._tracer.boundary = sys._getframe()
        for entry in entries:
            try:
                self._play_one(entry)
            except Exception as error:
                self._again.error = error
                return
        if self._again.finite:
            self._run_hooks_on_gradients(self._added_up())

    def _note_changes(self, entry: Entry) -> None:
        """Of a call that is made again: what it read and is no longer there."""
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
        if (
            self.weights is not None and self.weights.take(entry, self._counterpart, self._tracing)
        ) or not self._needed(entry):
            return
        self._note_changes(entry)
        if entry.contents is not None and entry.contents.used_up is not None:
            raise CannotReplayError(say("watch.used_up", what=entry.contents.used_up))
        self._use_values_of(entry)
        inner_losses: list[torch.Tensor] = []
        with self._as_it_was(entry), noting_inner_losses(inner_losses):
            args, kwargs = self._arguments(entry)
            if changes_its_input(entry.call, kwargs) and self._would_touch_the_program(args, kwargs):
                return
            self._tracer.base = entry.stack
            self._tracer.phase = _phase_of(entry)
            with self._context(entry.context):
                outputs = self._call(entry, args, kwargs)
        self._pair(entry, outputs)
        if entry.kind == "module":
            self._kept.ends()
            self._again.outputs = list(tensors_in(outputs))
            self._tracer.roots += _phase_of(entry) != "loss"
            self._compare(entry.made, self._again.outputs)
        elif entry.functional and not entry.derivative and not self._tracer.roots:
            self._again.outputs = list(tensors_in(outputs))
        elif entry.derivative and not self._differentiates:
            self._note_derivative(list(tensors_in(outputs)), inner_losses)
        elif getattr(entry.call, "__name__", "") == "grad":
            losses = tensors_in(args[0] if args else kwargs.get("outputs"))
            bad = [t for t in losses if measurable(t) and not is_finite(t)]
            if all(map(is_finite, self._again.losses)):  # else this one comes of that, or may
                self._again.losses += bad
            self._again.gradients += [(t, t) for t in tensors_in(outputs)]

    def _note_derivative(self, outputs: list[torch.Tensor], losses: list[torch.Tensor]) -> None:
        """What a transform of torch.func gave: gradients, or, if it differentiated something bad, that."""
        bad = [t for t in losses if measurable(t) and not is_finite(t)]
        if not bad:
            self._again.gradients += [(t, t) for t in outputs]
        elif all(self._tracer.writers.get(t) is None for t in bad):
            self._again.losses += outputs
        else:
            self._again.losses += bad

    def _arguments(self, entry: Entry) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = entry.args, entry.kwargs
        if entry.contents is not None:
            args, kwargs = entry.contents.rewound(args), entry.contents.rewound(kwargs)
        return map_tensors(args, self._stand_in), map_tensors(kwargs, self._stand_in)

    @contextlib.contextmanager
    def _as_it_was(self, entry: Entry) -> Iterator[None]:
        """Random states, containers, settings and free variables as they were when the call was made."""
        if entry.rng is not None and not (self._changes.draws_on and self._drawing):
            first = next((e.rng for e in self._changes.begins_with if e.rng is not None), entry.rng)
            first.put_back()
            self._drawing = True
        for generator, state in entry.generators:
            if self._changes.draws_on and entry.kind == "module":
                if id(generator) in self._drawn_from:
                    continue
                self._drawn_from.add(id(generator))
                known = (g for e in self._changes.begins_with for g in e.generators if g[0] is generator)
                _, state = next(known, (generator, state))
            put_state(generator, state)
        variables = [(variable, variable.get()) for variable in entry.free]
        undo = None if entry.contents is None else entry.contents.loaded(self._stand_in)
        try:
            for variable, _ in variables:
                variable.put(map_tensors(variable.value, self._stand_in))
            with _with_settings(entry):
                yield
        finally:
            for variable, now in variables:
                variable.put(now)
            if undo is not None:
                undo()

    def _use_values_of(self, entry: Entry) -> None:
        """Tensors that were overwritten since this call: a copy of what they held then. Those that were not
        hold it still, whatever the replay has made of them."""
        for tensor, version in entry.versions:
            copy = self._tape.saved.get((id(tensor), version))
            if copy is not None:
                own = self._untouched.own(copy.clone(), of=tensor)
                self._counterpart[id(tensor)] = own.requires_grad_(tensor.requires_grad)
            elif id(tensor) in self._counterpart and self._holds_something_else(tensor, version):
                del self._counterpart[id(tensor)]

    def _holds_something_else(self, tensor: torch.Tensor, version: int) -> bool:
        if self._changes.any or tensor.requires_grad or version_of(tensor) != version:
            return False
        return not equal(tensor, self._counterpart[id(tensor)])

    def _needed(self, entry: Entry) -> bool:
        """Models and backward run again, and what hangs on them. Data preparation does not: what it made is
        on the tape, and making it twice might touch what belongs to the program. A change in place is made
        where a copy of what was changed is in use."""
        if entry.call is gone and not any(map(has_history, tensors_in(entry.outputs))):
            return False
        if entry.kind in ("module", "backward") or entry.functional or self._is_changed(entry):
            return True
        if entry.kind == "write":
            written = tensors_in(written_to(entry.args, entry.kwargs))
            return bool(written) and all(id(t) in self._counterpart for t in written)
        if any(id(t) in self._counterpart for t in given_to(entry)):
            return True
        return entry.context.grad and any(has_history(t) for t in tensors_in(entry.outputs))

    def _is_changed(self, entry: Entry) -> bool:
        return self._changes.call is not None and self._changes.call(entry) is not entry.call

    def _call(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if entry.kind == "backward":
            return self._backward(entry, args, kwargs)
        if isinstance(entry.call, nn.Module):
            self._kept.begins(entry)
            if is_sharded(entry.call):
                raise NeedsOtherRanks(type(entry.call).__name__)
            if getattr(entry.call, "training", entry.training) != entry.training:
                entry.call.train(entry.training)
            args = map_tensors(args, _copy_of) if entry.overwritten else args
            call: Any = entry.call
        else:
            call = self._counterpart.get(id(entry.call), entry.call)
            if self._changes.call is not None and call is entry.call:
                call = self._changes.call(entry)
        if entry.swapped is not None:
            weights = map_tensors(entry.swapped, self._stand_in)
            with self._tracing():
                return torch.func.functional_call(call, weights, args, kwargs)
        with self._tracing():
            return call(*args, **kwargs)

    def _backward(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensors = list(tensors_in(args[0] if args else kwargs.get("tensors")))
        seeds = seeds_of(args, kwargs, tensors)
        if self._without_scale and entry.unscaled is not None:
            tensors, seeds = [self._stand_in(entry.unscaled)], [None]
        if entry.unscaled is not None:
            losses = [self._stand_in(entry.unscaled)]
        else:
            losses = list(map(judged, tensors, seeds))
        self._again.losses += losses
        if self._tape.stand_ins and all(value.dim() == 0 for value in entry.judged):
            # of what the model returned, nothing may be left to compare with
            self._compare([(value, version_of(value)) for value in entry.judged], losses)
        wanted = list(tensors_in(kwargs.get("inputs"))) or leaves_of(tensors)
        wanted = list({id(t): t for t in wanted}.values())
        if not wanted:
            return
        self._untouched.keep_gradients(wanted)
        create = bool(kwargs.get("create_graph") or (len(args) > 3 and args[3]))
        with self._tracing():
            found = torch.autograd.grad(
                tensors, wanted, seeds, retain_graph=True, create_graph=create, allow_unused=True
            )
        self._again.gradients += [(p, g) for p, g in zip(wanted, found, strict=True) if g is not None]
        self._again.backwards.append(len(self._again.gradients))
        self._differentiated.append(entry)

    def _added_up(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each parameter with the sum of what all backwards gave it, as torch adds it up: finite gradients
        may have a sum that is not."""
        totals: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        several, begins = len(self._differentiated) > 1, 0
        holders = self._holders() if several else {}
        for entry, ends in zip(self._differentiated, self._again.backwards, strict=True):
            self._tracer.base, self._tracer.phase = entry.stack, "backward"
            for parameter, gradient in self._again.gradients[begins:ends]:
                if id(parameter) in totals:
                    self._add(totals[id(parameter)][1], gradient, holders.get(id(parameter), []))
                else:
                    first = self._untouched.own(gradient.detach().clone()) if several else gradient
                    totals[id(parameter)] = parameter, first
            begins = ends
        sums = totals.values() if several else ()
        bad = [(p, total) for p, total in sums if measurable(total) and not is_finite(total)]
        self._again.gradients += bad
        return [] if bad else list(totals.values())

    def _add(self, total: torch.Tensor, gradient: torch.Tensor, modules: list[nn.Module]) -> None:
        running = self._tracer.scope.modules
        running += modules
        try:
            with torch.no_grad(), self._tracing(), contextlib.suppress(RuntimeError):  # sparse and dense ones
                total.add_(gradient)
        finally:
            running.clear()

    def _holders(self) -> dict[int, list[nn.Module]]:
        """id of a parameter -> the model that was called, and the module in it that it belongs to."""
        roots = [e.call for e in self._tape.entries if isinstance(e.call, nn.Module)]
        return {
            id(p): [root, module]
            for root in reversed(roots)
            for module in root.modules()
            for p in module._parameters.values()
        }

    def _run_hooks_on_gradients(self, totals: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """The gradients are finite here and were not in the program. Hooks that it runs on accumulated
        gradients may have spoiled them: run those, but no optimizer."""
        for parameter, gradient in totals:
            hooks = getattr(parameter, "_post_accumulate_grad_hooks", None)
            if hooks and parameter.grad is not None and not is_finite(parameter.grad):
                self._run_hooks(list(hooks.values()), parameter, gradient.detach().clone())

    def _run_hooks(
        self, hooks: list[Callable[..., Any]], parameter: torch.Tensor, gradient: torch.Tensor
    ) -> None:
        was = parameter.grad
        stop = register_optimizer_step_pre_hook(_no_update)
        try:
            parameter.grad = self._untouched.own(gradient)
            with torch.no_grad(), self._tracing():
                for hook in hooks:
                    hook(parameter)
            if parameter.grad is not None:
                self._again.gradients.append((parameter, parameter.grad))
        except Exception:
            return  # it cannot be run outside of a backward, or wants to update
        finally:
            stop.remove()
            parameter.grad = was

    @contextlib.contextmanager
    def _context(self, context: Context) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if context.inference:
                stack.enter_context(torch.inference_mode())
            stack.enter_context(torch.set_grad_enabled(context.grad))
            for device, enabled, dtype in context.autocast:
                stack.enter_context(
                    torch.autocast(device, dtype=dtype, enabled=enabled and self._changes.autocast)
                )
            if context.saving is not None and self._through_saving:
                pack, unpack = context.saving
                if self._changes.saving is not None:
                    pack, unpack = self._changes.saving(pack, unpack)
                hooks = torch.autograd.graph.saved_tensors_hooks(self._for_the_backward(pack), unpack)
                stack.enter_context(hooks)
            yield

    def _for_the_backward(self, pack: Callable[..., Any]) -> Callable[..., Any]:
        """What is done to save a tensor is done for the backward alone."""

        def packing(tensor: torch.Tensor) -> Any:
            phase, self._tracer.phase = self._tracer.phase, "backward"
            try:
                return pack(tensor)
            finally:
                self._tracer.phase = phase

        return packing

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self._counterpart.get(id(tensor), tensor)
        if found is tensor and has_history(tensor):
            return self._cut_off(tensor)
        if tensor.requires_grad and not found.requires_grad and not has_history(tensor):
            # since it was made, the program has asked for its gradient
            found = self._counterpart[id(tensor)] = found.detach().requires_grad_()
        if found is tensor and self._changes.outside is not None and not tensor.requires_grad:
            found = self._counterpart[id(tensor)] = self._changes.outside(tensor)
        return found

    def _cut_off(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that no call returned: where its own history is not on the tape, its value, with a fresh
        end."""
        found = self._kept.counterpart_of(tensor)
        if found is None:
            self._again.cut_off = True
            found = tensor.detach().requires_grad_(tensor.requires_grad)
        self._counterpart[id(tensor)] = found
        return found

    def _would_touch_the_program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return any(key_of(t) in self._outside_memory for t in tensors_in(written_to(args, kwargs)))

    def _compare(self, made: Sequence[tuple[torch.Tensor, int]], new: list[torch.Tensor]) -> None:
        """A model that keeps state nobody recorded gives something else when it is called again: say so."""
        if self._changes.any:
            return
        same = len(made) == len(new) and all(
            version_of(was) != version or alike(was, now)
            for (was, version), now in zip(made, new, strict=True)
        )
        if not same and not self._again.differs:
            self._again.differs = True
            self._again.notes.append(say("watch.replay_differs"))

    def _pair(self, entry: Entry, replayed: Any) -> None:
        """What the program got from this call is stood in for by what the replay got. Where the two differ
        though nothing changed since (unrecorded randomness), the record is believed."""
        if entry.functional and isinstance(entry.outputs, tuple) and isinstance(replayed, tuple):
            functions = (pair for pair in zip(entry.outputs, replayed, strict=False) if callable(pair[0]))
            self._counterpart.update((id(was), now) for was, now in functions)
        new = list(tensors_in(replayed))
        if len(entry.made) != len(new):
            return
        for (was, version), now in zip(entry.made, new, strict=True):
            if self._changes.any or now.requires_grad or version_of(was) != version or equal(was, now):
                self._counterpart[id(was)] = now
            if self._with_hooks and now.requires_grad:
                for hook in hooks_on(was):
                    now.register_hook(hook)


def hooks_on(tensor: torch.Tensor) -> list[Callable[..., Any]]:
    """What the program has put on it, to be called with its gradient."""
    return list((tensor._backward_hooks or {}).values())


def _copy_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad) if not has_history(tensor) else tensor


def _with_settings(entry: Entry) -> contextlib.AbstractContextManager[None]:
    if entry.settings is None:
        return contextlib.nullcontext()
    settings, then = entry.settings
    return settings.as_they_were(then)


def _phase_of(entry: Entry) -> str:
    if isinstance(entry.call, nn.Module):
        return entry.phase
    return "functional" if entry.functional else "outside"


def _no_update(*_: Any) -> None:
    raise CannotReplayError("an update")
