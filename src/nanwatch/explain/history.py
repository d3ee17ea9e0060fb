"""What the last steps tell: a rise that led up to the bad one, and the layer that leads it.

Two kinds of rise end in an overflow. From step to step: the recorded losses and gradient norms climb, and so
do the weights. Within one step: the same weights are applied again and again, in a recurrence or through the
depth of a network, and each time the value grows by about the same factor.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from nanwatch.explain.state import optimizer_of
from nanwatch.records import StepFacts
from nanwatch.replay.tracer import measurable
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Tape

if TYPE_CHECKING:
    from nanwatch.explain.case import Case
    from nanwatch.explain.lineage import Node

CLIMB = 1.25
"""A step climbs when it is this many times all that came before it in the rise."""
DIP = 1.5
"""A rise may be interrupted by a step that is this many times smaller."""
STEPS_UPHILL = 3
MOST_OPTIMIZERS = 4
SEVERAL = 2.0
"""Most weights are so many times their usual size when a few updates threw them there."""

LARGE = 100.0
"""A weight this many times its usual size has grown."""
FEWEST_PASSES = 6
FAR_ORDERS = 8
MOST_HOPS = 4000
BRANCH = 4
"""Ops between an addition and the weights of the branch that it adds."""


@dataclass(frozen=True)
class Rise:
    """Of the loss or of the gradient norm, over the last recorded steps, up to the bad one."""

    of_loss: bool
    since: int
    """The step at which it begins; from there on it was never stopped."""
    steps: int
    climbs: int
    first: float
    last: float

    @property
    def orders(self) -> float:
        return math.log10(self.last / self.first)

    @property
    def clear(self) -> bool:
        """Several steps, each above the ones before, by orders of magnitude: no single batch does that."""
        return (self.climbs >= 3 and self.orders >= 2) or (self.climbs >= 2 and self.orders >= 4)

    @property
    def sudden(self) -> bool:
        """One recorded step that is far above the others."""
        return not self.clear and self.climbs >= 1 and self.orders >= 4


def rise_of(history: Sequence[StepFacts]) -> Rise | None:
    """The larger of the rises of the loss and of the gradient norm; None when neither climbs to the end."""
    found = [_rise([(f.step, _size(f.loss)) for f in history], True, history)]
    found.append(_rise([(f.step, _size(f.grad_norm)) for f in history], False, history))
    rises = [r for r in found if r is not None]
    return max(rises, key=lambda r: (r.clear, r.orders)) if rises else None


def uphill_rate(case: Case) -> float | None:
    """The rate of the last updates, if it is below zero: then they climb the loss. (Not where the optimizer
    was asked to.)"""
    rates = [f.lr for f in case.history if f.lr][-STEPS_UPHILL:]
    optimizer = optimizer_of(case)
    groups = [] if optimizer is None else optimizer.param_groups
    if len(rates) < STEPS_UPHILL or any(group.get("maximize") for group in groups):
        return None
    return min(rates[-1]) if all(min(lr) < 0 for lr in rates) else None


def _size(value: float | str | None) -> float | None:
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value == 0:
        return None
    return abs(float(value))


def _rise(values: list[tuple[int, float | None]], of_loss: bool, history: Sequence[StepFacts]) -> Rise | None:
    known = [(step, value) for step, value in values if value is not None]
    if len(known) < 2:
        return None
    # with several optimizers the steps of one alternate with those of the others
    width = min(MOST_OPTIMIZERS, max(1, len({f.lr for f in history[-8:]}))) if len(known) > 4 else 1
    envelope = [max(v for _, v in known[max(0, i - width + 1) : i + 1]) for i in range(len(known))]
    begin = len(envelope) - 1
    while begin > 0 and envelope[begin - 1] <= envelope[begin] * DIP:
        begin -= 1
    begin = min(range(begin, len(envelope)), key=lambda i: envelope[i])
    climbs, top, since = 0, envelope[begin], known[begin][0]
    for i in range(begin + 1, len(envelope)):
        if envelope[i] >= CLIMB * top:
            climbs += 1
            top = envelope[i]
    if not climbs or envelope[-1] < top / DIP:
        return None
    return Rise(of_loss, since, len(envelope) - begin, climbs, envelope[begin], top)


# The weights as they are now


@dataclass(frozen=True)
class Layer:
    """A parameter: how large it is, against the size that it has when training begins."""

    name: str
    size: float
    """The root of the mean square of its finite values."""
    usual: float
    bad: int
    large: float
    """The share of its values that are beyond a hundred times the usual size."""

    @property
    def times(self) -> float:
        return self.size / self.usual

    @property
    def grown(self) -> bool:
        """All over, and not in one value that something hit."""
        return self.times > LARGE and self.large > 0.3


def layers_of(case: Case) -> list[Layer]:
    """Every parameter of the models of this step, the one that is furthest from its usual size first."""
    found: dict[int, Layer] = {}
    for model in case.models:
        for name, parameter in model.named_parameters():
            if id(parameter) not in found and measurable(parameter) and parameter.numel():
                found[id(parameter)] = _layer(name.replace("_orig_mod.", ""), parameter)
    return sorted(found.values(), key=lambda layer: -layer.times)


def jumped(case: Case) -> bool:
    """Whether the loss rose by orders with the few updates that were made, and most weights are several times
    their usual size: a rate that is far too high needs no more."""
    made = [f for f in case.history if not {"scaler-skip", "skip"} & set(f.events)]
    rise = rise_of(case.history)
    if rise is None or not rise.of_loss or rise.orders < 3 or not 1 <= len(made) < 4:
        return False
    sizes = [layer.times for layer in layers_of(case)]
    return bool(sizes) and sorted(sizes)[len(sizes) // 2] > SEVERAL


def _layer(name: str, parameter: torch.Tensor) -> Layer:
    values = parameter.detach().double() if not parameter.is_complex() else parameter.detach().abs().double()
    finite = values[values.isfinite()]
    usual = usual_size(parameter)
    size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    large = float((finite.abs() > LARGE * usual).double().mean()) if finite.numel() else 1.0
    return Layer(name, size, usual, int(values.numel() - finite.numel()), large)


def usual_size(parameter: torch.Tensor) -> float:
    """About what the common initialisations give: one over the root of the inputs of a unit."""
    if parameter.dim() < 2:
        return 1.0
    inputs = max(1, parameter.numel() // parameter.shape[0])
    return 1.0 / math.sqrt(inputs)


def weights_on(tape: Tape) -> list[torch.Tensor]:
    """Of every model that is called there: those that another optimizer trains may have grown along."""
    models = [e.call for e in tape.entries if isinstance(e.call, torch.nn.Module)]
    found = {id(p): p for m in models for p in m.parameters()}
    return [p for p in found.values() if type(p) is torch.nn.Parameter and measurable(p)]


@contextlib.contextmanager
def usual_weights(parameters: Iterable[torch.Tensor]) -> Iterator[None]:
    """The weights brought back to the size that training begins with, for a while: what an earlier step was
    like can be tried though its weights are gone. Afterwards they have their own memory back, untouched."""
    memory = {id(p): (p, p.data) for p in parameters}
    try:
        for parameter, data in memory.values():
            parameter.data = usual_values(data)
        yield
    finally:
        for parameter, data in memory.values():
            parameter.data = data


def usual_values(values: torch.Tensor) -> torch.Tensor:
    """A copy, no larger than usual; what is not finite is drawn anew."""
    usual = usual_size(values)
    finite = torch.isfinite(values)
    if not bool(finite.all()):
        source = torch.Generator().manual_seed(0)
        drawn = torch.randn(values.shape, generator=source, dtype=torch.float32).to(values)
        largest = values[finite].abs().max() if bool(finite.any()) else values.new_tensor(1.0)
        values = torch.where(finite, values, drawn * largest.clamp(max=usual))
    size = (
        float(values.double().square().mean().sqrt()) if values.numel() and not values.is_complex() else 0.0
    )
    return (values.double() * (usual / size)).to(values.dtype) if size > 3 * usual else values.clone()


# A rise within one step


@dataclass(frozen=True)
class Passes:
    """The same weights applied again and again: the sizes of what came out, in order."""

    op: str
    sizes: tuple[float, ...]
    same_place: bool
    """One line, over and over (a recurrence); else one layer after the other (depth)."""
    node: Node
    same_weights: bool = False
    """The model's own; else whatever the line was given each time, such as weights of an inner training."""

    @property
    def factor(self) -> float:
        """By how much it grew from one pass to the next, as a rule."""
        return float((self.sizes[-1] / self.sizes[0]) ** (1 / (len(self.sizes) - 1)))

    @property
    def orders(self) -> float:
        return math.log10(self.sizes[-1] / self.sizes[0])

    @property
    def far(self) -> bool:
        """Grown by more than what layers of a sound model do to a value."""
        return self.orders >= FAR_ORDERS

    @property
    def steady(self) -> bool:
        """Most passes grow, and no single one is what did it."""
        rising = sum(x > 0 for x in self._logs) / len(self._logs)
        return rising >= 0.7 and max(self._logs) <= 0.4 * self.orders

    @property
    def accelerating(self) -> bool:
        """Nearly every pass grows, the later ones more: what one makes the next one multiplies with."""
        half = len(self._logs) // 2
        later = self._logs[half:]
        falls = sum(x <= 0 for x in self._logs)
        return falls <= 1 and min(later) > 0 and sum(later) > 2 * sum(self._logs[:half])

    @property
    def _logs(self) -> list[float]:
        return [math.log10(b / a) for a, b in zip(self.sizes, self.sizes[1:], strict=False)]


SAME_WEIGHTS, LAYERS, LOOP = "same weights", "layers", "loop"
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "mv", "addmv", "convolution")


def passes_of(case: Case) -> Passes | None:
    """The growth from pass to pass that led to the birth. Costs a replay."""
    if case.birth is None:
        return None
    lineage = case.lineage
    born = lineage.node_of(case.birth.op)
    if born is None:
        return None
    weights = {key_of(p) for m in case.models for p in m.parameters()}
    used = [(node, _weights_used(case, node, weights)) for node in _largest_path(case, born)]
    best: Passes | None = None
    for kind in (SAME_WEIGHTS, LAYERS, LOOP):
        groups: dict[object, list[Node]] = {}
        for node, which in used:
            if node.base in PRODUCTS if kind == LOOP else which:
                key = (node.name, () if kind == LAYERS else node.stack, which if kind == SAME_WEIGHTS else ())
                groups.setdefault(key, []).append(node)
        for nodes in groups.values():
            sizes = tuple(s for n in sorted(nodes, key=lambda n: n.index) if (s := _largest(n)) > 0)
            if len(sizes) < FEWEST_PASSES or sizes[0] > 1e6 or sizes[-1] <= sizes[0]:
                continue
            passes = Passes(nodes[0].name, sizes, kind != LAYERS, nodes[0], kind == SAME_WEIGHTS)
            grows = passes.steady or (kind == LOOP and passes.accelerating)
            if grows and (best is None or passes.orders > best.orders):
                best = passes
        if best is not None:
            break
    return best


def _largest_path(case: Case, born: Node) -> list[Node]:
    """From the birth back, always along the largest of the inputs."""
    path, node = [], born
    for _ in range(MOST_HOPS):
        makers = [
            case.lineage.nodes[s] for _, s, _ in node.inputs if s is not None and s in case.lineage.nodes
        ]
        makers = [m for m in makers if m.index < node.index]
        if not makers:
            break
        node = max(makers, key=_largest)
        path.append(node)
    return path


def _weights_used(case: Case, node: Node, weights: set[int]) -> frozenset[int]:
    """The weights that the op reads; of an addition in a residual stream, those of the branch it adds."""
    seen, reached = {node.index}, [node]
    for _ in range(BRANCH if node.base == "add" else 1):
        found = frozenset(key for n in reached for _, _, key in n.inputs if key in weights)
        if found:
            return found
        sources = {s for n in reached for _, s, _ in n.inputs if s in case.lineage.nodes} - seen
        seen |= sources
        reached = [case.lineage.nodes[s] for s in sources]
    return frozenset()


def _largest(node: Node) -> float:
    sizes = [abs(v) for n in node.outputs for v in (n.min, n.max) if v is not None and math.isfinite(v)]
    return max(sizes, default=0.0)
