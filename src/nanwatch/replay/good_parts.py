"""Of several micro-batches in one step some are bad: the gradients of the others, made again without them.

The calls of the good ones are made as in the program, with no tracer on the stack, which could change a last
bit. Statistics and random states go on from one good part to the next, as if the bad ones had never come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from nanwatch.replay.again import Changes, run_again
from nanwatch.replay.needed_entries import differentiates
from nanwatch.replay.tracer import OpTracer
from nanwatch.tensors import is_finite
from nanwatch.watching.contents import Held, held_by, put_contents
from nanwatch.watching.module_calls import ModuleCalls
from nanwatch.watching.module_state import attribute_of, put_attribute, tensor_of
from nanwatch.watching.randomness import GeneratorState, Rng, put_state, state_of
from nanwatch.watching.tape import Entry, Tape, given_to, made_inside
from nanwatch.watching.values import put_value

Part = list[Entry]


@dataclass
class GoodParts:
    """What the step is without its bad micro-batches."""

    bad: tuple[int, ...]
    """Which of them are left out."""
    count: int
    gradients: dict[int, torch.Tensor] = field(default_factory=dict)
    """id of a parameter -> its gradient, of all good parts."""
    by_part: list[dict[int, torch.Tensor]] = field(default_factory=list)
    """The same for each good part."""
    buffers: list[tuple[nn.Module, str, torch.Tensor]] = field(default_factory=list)
    attributes: list[tuple[nn.Module, str, Any]] = field(default_factory=list)
    rng: Rng | None = None
    generators: list[GeneratorState] = field(default_factory=list)
    containers: Held = field(default_factory=list)

    def put_in(self, optimizer: Optimizer) -> None:
        """The program goes on as if there had been no others."""
        with torch.no_grad():
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                gradient = self.gradients.get(id(parameter))
                if gradient is None or parameter.grad is None:
                    parameter.grad = gradient
                else:
                    parameter.grad.copy_(gradient)
            for owner, name, value in self.attributes:  # first: a batch may stand in the place of a buffer
                put_attribute(owner, name, value)
            for owner, name, value in self.buffers:
                put_value(tensor_of(owner, name), value)
        put_contents(self.containers)
        for generator, state in self.generators:
            put_state(generator, state)
        if self.rng is not None:
            self.rng.put_back()


def good_parts(tape: Tape, earlier: tuple[Tape, ...], calls: ModuleCalls) -> GoodParts | None:
    """None when there is one micro-batch only, when none is good, or when they cannot be told apart."""
    found = good_or_all(tape, earlier, calls)
    return found if found is not None and found.bad else None


def good_or_all(tape: Tape, earlier: tuple[Tape, ...], calls: ModuleCalls) -> GoodParts | None:
    """The same, where also no part may be bad."""
    if tape.lacks_parts:
        return None
    parts = parts_of(tape)
    bad = {i for i, part in enumerate(parts) if not _loss_is_finite(part)}
    if len(parts) < 2 or len(bad) == len(parts) or not _stand_alone(parts) or _are_no_batches(parts, bad):
        return None
    found = made_without(bad, tape, earlier, calls)
    if found is None:  # a finite loss with a bad derivative
        every = set(range(len(parts)))
        bad = {i for i in every if made_without(every - {i}, tape, earlier, calls) is None}
        found = made_without(bad, tape, earlier, calls) if len(bad) < len(parts) else None
    return found


def _are_no_batches(parts: list[Part], bad: set[int]) -> bool:
    """Whether the good ones give no model any data, while a bad one does: a penalty on the weights."""
    fed = {i for i, part in enumerate(parts) if any(e.kind == "module" and _is_given_data(e) for e in part)}
    return bool(fed) and fed <= bad


def _is_given_data(entry: Entry) -> bool:
    return any(not (t.requires_grad and t.is_leaf) for t in given_to(entry))


def parts_of(tape: Tape) -> list[Part]:
    """Each up to its backward."""
    parts: list[Part] = []
    current: Part = []
    for entry in tape.entries:
        current.append(entry)
        if entry.kind == "backward":
            parts.append(current)
            current = []
    return parts


def _loss_is_finite(part: Part) -> bool:
    return all(is_finite(loss) for loss in part[-1].judged)


def _stand_alone(parts: list[Part]) -> bool:
    """Whether none hangs on what another computed."""
    made: set[int] = set()
    before: list[Entry] = []
    for part in parts:
        for tensor in (t for entry in part for t in given_to(entry)):
            if id(tensor) in made or any(made_inside(entry, tensor) for entry in before):
                return False
        made |= {id(t) for entry in part for t, _ in entry.made if t.requires_grad and not t.is_leaf}
        before += part
    return True


def made_without(
    bad: set[int], tape: Tape, earlier: tuple[Tape, ...], calls: ModuleCalls
) -> GoodParts | None:
    """The other parts. None when something is not finite, or cannot be made again."""
    parts = parts_of(tape)
    kept = [entry for i, part in enumerate(parts) if i not in bad for entry in part]
    every = tuple(e for part in parts for e in part if e.kind != "write" and differentiates(e))
    some = Tape(tape.step)
    some.rebuild(kept)
    some.saved = tape.saved
    found = GoodParts(tuple(sorted(bad)), len(parts))

    def keep() -> None:
        found.rng = Rng.of_all()
        changed = {(id(o), n): (o, n) for e in every for o, n, _ in e.buffers}
        found.buffers = [(o, n, b.clone()) for o, n in changed.values() if (b := tensor_of(o, n)) is not None]
        named = {(id(o), n): (o, n) for e in every for o, n, _ in e.attributes}
        found.attributes = [(o, n, attribute_of(o, n)) for o, n in named.values()]
        found.generators = [(g, state_of(g)) for e in every if e.kind == "module" for g, _ in e.generators]
        found.containers = held_by([[held[0] for e in every for held in e.containers]])

    changes = Changes(tracer=_Untraced, draws_on=True, begins_with=every, at_end=keep)
    again = run_again(some, earlier, calls, False, changes)
    if again.error is not None or again.cut_off or not again.finite or not again.gradients:
        return None
    for parameter, gradient in again.gradients:
        _add(found.gradients, parameter, gradient)
    begins = 0
    for ends in again.backwards:
        part: dict[int, torch.Tensor] = {}
        for parameter, gradient in again.gradients[begins:ends]:
            _add(part, parameter, gradient)
        found.by_part.append(part)
        begins = ends
    return found if all(is_finite(gradient) for gradient in found.gradients.values()) else None


def _add(sums: dict[int, torch.Tensor], parameter: torch.Tensor, gradient: torch.Tensor) -> None:
    had = sums.get(id(parameter))
    sums[id(parameter)] = gradient.detach() if had is None else had + gradient.detach()


class _Untraced(OpTracer):
    """Never on the stack."""

    def __enter__(self) -> _Untraced:
        return self

    def __exit__(self, *_: Any) -> None:
        return None
