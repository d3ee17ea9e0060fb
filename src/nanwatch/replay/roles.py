"""What the program calls its tensors, and who of its own code wrote into them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from nanwatch.messages import say
from nanwatch.replay.again import call_again
from nanwatch.replay.of_models import given_what_models_made
from nanwatch.replay.owners import is_part_of_a_model, owners_of
from nanwatch.replay.trace import Op, Operand
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite, numbers
from nanwatch.watching.attached import attached_to
from nanwatch.watching.stack import Stack
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, tensors_in
from nanwatch.watching.torch_functions import changes_its_input, written_to
from nanwatch.watching.trouble import Trouble

GUESSES = (0.0, -1.0)
"""In the place of a NaN, where nobody kept what was there before."""
PUTS = frozenset("__setitem__ copy_ fill_ zero_ fill_diagonal_ index_copy_ index_fill_ masked_fill_".split())
"""Functions that compute nothing."""
DEEPEST = 100
"""How far a bad value is followed back."""


@dataclass(frozen=True)
class Weight:
    name: str
    module: str
    root: nn.Module | None = None
    """The module that the program called."""


def _has_nan(tensor: torch.Tensor) -> bool:
    return measurable(tensor) and bool(torch.isnan(tensor).any())


def _turns_inf_into_nan(given: torch.Tensor, entry: Entry) -> bool:
    made = [t for t in tensors_in(entry.outputs) if measurable(t)]
    return not bool(given.isnan().any()) and any(bool(t.isnan().any()) for t in made)


def _hands_on(entry: Entry, key: int) -> bool:
    """A call that returns memory as it was given it has written nothing: a view, `to` the dtype it has."""
    return (
        entry.kind == "op"
        and not changes_its_input(entry.call, entry.kwargs)
        and any(key_of(t) == key for t in tensors_in((entry.args, entry.kwargs)))
    )


def _puts_good_values(entry: Entry, key: int) -> bool:
    """A call that only puts values somewhere, and finite ones."""
    if getattr(entry.call, "__name__", "") not in PUTS:
        return False
    given = [t for t in tensors_in((entry.args, entry.kwargs)) if key_of(t) != key and measurable(t)]
    numbers_given = [a for a in (*entry.args, *entry.kwargs.values()) if isinstance(a, float)]
    return all(map(is_finite, given)) and all(map(math.isfinite, numbers_given))


def written_down(op: Op) -> bool:
    """Whether the program's own text asks for the infinity: `time[2] = float("inf")`."""
    return op.deliberate or any(o.from_python for o in op.inputs)


class Roles:
    """What the program calls the tensors: parameters and buffers of its modules, arguments of its calls."""

    def __init__(self, trouble: Trouble) -> None:
        self._tape = trouble.tape
        self._entries = [entry for tape in (*trouble.earlier, trouble.tape) for entry in tape.entries]
        self._since_update = 0
        """The first entry after the last update, which has overwritten what was in the weights before."""
        if trouble.last_update is not None:
            self._since_update = len(self._entries) - len(trouble.tape.entries)
        self._arrivals = trouble.arrivals
        self._weights: dict[int, Weight] = {}
        self.stand_ins: dict[int, int] = {}
        """Memory of a replay -> the memory of the program that it stands in for."""
        self.harms_without_given: Callable[[Op, list[torch.Tensor]], bool] | None = None
        """Whether what was born in an op, in what it made, spoils the step by itself."""
        self.made_again: Callable[[int], Op | None] | None = None
        """The op that first made something bad in memory that was filled before the steps on record."""
        self.made_earlier: Callable[[int], Op | None] | None = None
        """The op that first made something bad in memory that a model returned in an earlier step."""
        self._nan_arrived = not trouble.sinks or any(_has_nan(t) for _, t in trouble.sinks)
        for entry in trouble.tape.entries:
            if isinstance(entry.call, nn.Module):
                self._note_module(entry.call)
        for group in trouble.optimizer.param_groups if trouble.optimizer is not None else ():
            for index, parameter in enumerate(group["params"]):
                self._weights.setdefault(key_of(parameter), Weight(f"parameter {index}", ""))

        for entry in self._entries[self._since_update :]:
            self._note_updated_by_hand(entry)

    def _note_updated_by_hand(self, entry: Entry) -> None:
        """`w -= rate * w.grad` without any module or optimizer: only what is learned is changed in place
        while it requires a gradient, and only with gradients off."""
        if entry.kind != "write" or entry.context.grad:
            return
        target = written_to(entry.args, entry.kwargs)
        if not isinstance(target, torch.Tensor) or target._base is not None:
            return  # torch refuses to say whether a view that was made with gradients off is a leaf
        if target.is_leaf and target.requires_grad:
            self._weights.setdefault(key_of(target), Weight(f"parameter {tuple(target.shape)}", ""))

    def _note_module(self, root: nn.Module) -> None:
        for name, tensor in [*root.named_parameters(), *root.named_buffers()]:
            shown = name.replace("_orig_mod.", "")
            self._weights.setdefault(key_of(tensor), Weight(shown, shown.rpartition(".")[0], root))
        for each in attached_to(root, self._arrivals):
            self._weights.setdefault(key_of(each.tensor), Weight(each.name, each.path, root))

    def in_the_program(self, key: int) -> int:
        """The memory of the program that this one stands in for."""
        return self.stand_ins.get(key, key)

    def weight(self, key: int) -> Weight | None:
        return self._weights.get(self.in_the_program(key))

    def owners(self, op: Op) -> tuple[nn.Module, ...]:
        """The modules that an op is in, called or not, outermost first."""
        return owners_of(op.stack, op.modules, self._entries)

    def is_part_of_a_model(self, op: Op) -> bool:
        """What looks like a loss, or like work on the data, and is done by a model that nobody called."""
        looks_so = op.phase in ("loss", "data")
        return looks_so and is_part_of_a_model(op.stack, op.modules, self._entries)

    def made_before(self, key: int, reader: Op | None) -> Op | None:
        """The op that made what the program has carried on from an earlier step, or kept since before the
        steps on record. A function that only keeps what it has made is a part of the module that asks it."""
        memory = self.in_the_program(key)
        earlier = None if self.made_earlier is None else self.made_earlier(memory)
        if earlier is not None:
            return earlier
        op = None if self.made_again is None else self.made_again(memory)
        if op is not None and not op.modules and reader is not None and reader.modules:
            op.modules, op.phase = reader.modules, reader.phase
        return op

    def said_of_own_writes(self, ops: list[Op]) -> list[str]:
        """A model may write into its own weights while it runs: then they are not what they were. (Buffers
        are put back when a step is skipped.)"""
        models = [e.call for e in self._tape.entries if isinstance(e.call, nn.Module)]
        learned = {key_of(p) for model in models for p in model.parameters()}
        written = [self._weights[o.key] for op in ops for o in op.bad_outputs if o.key in learned]
        return [say("watch.wrote_its_own_weights", name=written[0].name)] if written else []

    def spoilt_weight(self) -> Operand | None:
        """A weight that is bad now. Where the step began well, it was spoilt on the way: by an update of the
        program's own between two calls of the model."""
        models = [e.call for e in self._tape.entries if isinstance(e.call, nn.Module)]
        weights = [p.detach() for model in models for p in model.parameters()]
        bad = next((p for p in weights if measurable(p) and not is_finite(p)), None)
        return None if bad is None else Operand(numbers(bad), key_of(bad), value=bad)

    def argument_name(self, key: int) -> str | None:
        for entry in self._tape.entries:
            if entry.kind == "module":
                for index, tensor in enumerate(tensors_in((entry.args, entry.kwargs))):
                    if key_of(tensor) == key:
                        return f"input {index} of {type(entry.call).__name__}"
        return None

    def computed(self, key: int) -> bool:
        """Whether a call on the tape made this memory: a model or a compiled function, not data."""
        return any(
            key_of(tensor) == key
            for entry in self._tape.entries
            if entry.kind in ("module", "apply") or getattr(entry.call, "__name__", "") == "grad"
            for tensor in tensors_in(entry.outputs)
        )

    def written_outside(self, key: int) -> bool:
        return self._last_entry(key) is not None

    def _last_entry(self, key: int) -> Entry | None:
        """The last call of the program's own code that wrote into this memory."""
        return next(iter(self._writers(key)), None)

    def _writers(self, key: int, until: Entry | None = None) -> Iterator[Entry]:
        """The calls of the program's own code that wrote into this memory, the last first. `until`: only
        those before it."""
        last = len(self._entries) if until is None else self._entries.index(until)
        first = self._since_update if self.weight(key) is not None else 0
        for entry in reversed(self._entries[first:last]):
            if entry.kind == "write" or changes_its_input(entry.call, entry.kwargs):
                if any(key_of(t) == key for t in tensors_in(written_to(entry.args, entry.kwargs))):
                    yield entry
            elif (
                (entry.kind == "op" or entry.functional)
                and any(key_of(t) == key for t in tensors_in(entry.outputs))
                and not _hands_on(entry, key)
            ):
                yield entry

    def origin(self, key: int, until: Entry | None = None, depth: int = 0) -> Op | None:
        """The op of the program's own code that first made a bad value which came to be in this memory:
        follow the tape backwards by value, then make that one call again, traced, on copies."""
        changes: list[Entry] = []
        for entry in self._writers(key, until):
            in_place = entry.kind == "write" or changes_its_input(entry.call, entry.kwargs)
            target = {key} if in_place else {key_of(t) for t in tensors_in(entry.outputs)}
            given = [t for t in tensors_in((entry.args, entry.kwargs)) if key_of(t) not in target]
            then = {id(t): self._then(t, entry) for t in given if measurable(t) and not is_finite(t)}
            for tensor in given:
                was = then.get(id(tensor))
                if was is not None and not is_finite(was):
                    beside = self._born_beside(entry, then)
                    if beside is not None and not self._nan_arrived and beside.makes_inf:
                        return beside  # NaN that it was given does not become an infinity
                    found = self.origin(key_of(tensor), entry, depth + 1) if depth < DEEPEST else None
                    if beside is not None and self._is_to_blame(beside, found, was, entry):
                        return beside
                    if _turns_inf_into_nan(was, entry) and (found is None or written_down(found)):
                        return self._made_again(entry, then)
                    return found
            if in_place and entry.before is not None and not is_finite(entry.before):
                beside = self._born_beside(entry, then)
                if beside is not None and depth < DEEPEST:
                    return self._beside_or_before(beside, key, entry, entry.before, depth)
            if not in_place or (entry.before is not None and is_finite(entry.before)):
                return self._made_again(entry, then) or self._first_of(changes)
            if entry.before is None:
                changes.append(entry)
        return self._first_of(changes)

    def _born_beside(self, entry: Entry, then: dict[int, torch.Tensor | None]) -> Op | None:
        """The op of a call that was given something bad, if it made something bad itself beside that."""
        known = {key: value for key, value in then.items() if value is not None}
        op = self._called_again(entry, known) if len(known) == len(then) else None
        return op if op is not None and op.fresh is not None else None

    def _beside_or_before(
        self, beside: Op, key: int, entry: Entry, before: torch.Tensor, depth: int
    ) -> Op | None:
        """Of a change in place: what it made itself, or what was there before it."""
        if not self._nan_arrived and beside.makes_inf:
            return beside
        found = self.origin(key, entry, depth + 1)
        return beside if self._is_to_blame(beside, found, before, entry) else found

    def _is_to_blame(self, beside: Op, origin: Op | None, given: torch.Tensor, entry: Entry) -> bool:
        """Rather than what the call was given: an infinity that was written down, or a NaN without which the
        step is bad too."""
        if not bool(torch.isnan(given).any()):
            return origin is None or written_down(origin)
        decide = self.harms_without_given
        return decide is not None and decide(beside, list(tensors_in(entry.outputs)))

    def _then(self, tensor: torch.Tensor, call: Entry) -> torch.Tensor | None:
        """What a tensor that is bad now held when this call was given it; None if nobody knows."""
        for entry in self._entries[self._entries.index(call) + 1 :]:
            if entry.kind != "write" and not changes_its_input(entry.call, entry.kwargs):
                continue
            target = written_to(entry.args, entry.kwargs)
            if any(key_of(t) == key_of(tensor) for t in tensors_in(target)):
                whole = entry.before is not None and entry.before.shape == tensor.shape
                return entry.before if whole else None
        return tensor

    def _made_again(self, entry: Entry, then: dict[int, torch.Tensor | None] | None = None) -> Op | None:
        """`then`: what was in its tensors, where that is not what is there now."""
        known = {key: value for key, value in (then or {}).items() if value is not None}
        unknown = [t for t in tensors_in((entry.args, entry.kwargs)) if (then or {}).get(id(t), t) is None]
        if not unknown:
            return self._called_again(entry, known)
        for guess in GUESSES:
            guessed = {id(t): _plausible(t, guess) for t in unknown}
            op = self._called_again(entry, {**known, **guessed})
            if op is not None:
                return _without_guesses(op, guessed.values())
        return None

    def _called_again(self, entry: Entry, values: dict[int, torch.Tensor]) -> Op | None:
        """The models of earlier steps had nothing to do with this one."""
        entries = self._tape.entries
        before = entries[: entries.index(entry)] if entry in entries else []
        roots = sum(e.kind == "module" and e.phase != "loss" for e in before)
        return call_again(entry, self._tape.step, roots, values, id(entry) in self._of_models)

    @cached_property
    def _of_models(self) -> set[int]:
        return given_what_models_made(self._entries)

    def _first_of(self, changes: list[Entry]) -> Op | None:
        """The first of some changes in place, given the last first, that makes something bad of finite
        values. Nobody kept what was there before them: it is tried what could have been."""
        for entry in reversed(changes):
            target = written_to(entry.args, entry.kwargs)
            if not isinstance(target, torch.Tensor) or not measurable(target):
                continue
            op = self._made_again(entry, {id(target): None})
            if op is not None:
                return op
        return None

    def kept_since_before(self, tensor: torch.Tensor | None) -> torch.Tensor | None:
        """The tensor from which bad values came into the steps on record: nothing there has written it, and
        no loader or file has brought it in. None where a call on record brought them in, or may have."""
        until: Entry | None = None
        for _ in range(DEEPEST):
            if tensor is None or (self._arrivals is not None and self._arrivals.get(tensor) is not None):
                return None
            entry = next(self._writers(key_of(tensor), until), None)
            if entry is None:
                return tensor
            own, until = key_of(tensor), entry
            given = (t for t in tensors_in((entry.args, entry.kwargs)) if key_of(t) != own and measurable(t))
            tensor = next((t for t in given if not is_finite(t)), None)
        return None

    def last_write(self, key: int) -> Stack | None:
        """Of those that may have brought something bad in."""
        entry = next((e for e in self._writers(key) if not _puts_good_values(e, key)), None)
        return None if entry is None else entry.stack

    def first_use(self, key: int) -> Stack:
        for entry in self._tape.entries:
            if any(key_of(t) == key for t in tensors_in((entry.args, entry.kwargs))):
                return entry.stack
        return ()


def _plausible(tensor: torch.Tensor, guess: float) -> torch.Tensor:
    """What may have been there before it went bad."""
    now = tensor.detach()
    return torch.where(now.isnan(), guess, torch.where(now.isinf(), now.sign(), now))


def _without_guesses(op: Op, guesses: Iterable[torch.Tensor]) -> Op:
    """What was only guessed is not shown, nor kept for a repro."""
    shapes = {tuple(guess.shape) for guess in guesses}
    op.call = None
    op.inputs = [o for o in op.inputs if o.numbers.shape not in shapes or o.numbers.name != "self"]
    return op
