"""The forward value at the places where the gradient is bad is changed: does the loss notice?

A value that `where`, a mask, an index or a clamp threw away can be anything without changing the loss. Its
gradient still passes through the op that made it, where 0 times infinity is NaN.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.lineage import Lineage, Node, Witness
from nanwatch.explain.provenance import MARKS, nature, only_data
from nanwatch.explain.text import Text
from nanwatch.records import Numbers
from nanwatch.replay.again import Changes
from nanwatch.replay.op_facts import output_tensors
from nanwatch.replay.tracer import measurable
from nanwatch.tensors.plain_dispatch import plain_dispatch

NAME = "discarded"
TITLE = Text(
    "changing the forward value whose gradient is bad, to see whether the loss depends on it",
    "改动梯度异常处的前向值，看损失是否依赖它",
)
UNUSED = Text(
    "{op} at these places was given another value: the loss stays the same",
    "把 {op} 在这些位置的值换成别的数：损失不变",
)
USED = Text(
    "{op} at these places was given another value: the loss changes",
    "把 {op} 在这些位置的值换成别的数：损失随之改变",
)


CHOOSES = frozenset(
    "where clamp clamp_max clamp_min hardtanh minimum maximum nan_to_num masked_fill index index_select "
    "masked_select gather select slice topk amin amax min max relu".split()
)
"""Ops that take one value and leave another."""

MOST_FOLLOWED = 5000


def applies(case: Case) -> bool:
    return case.phase == "backward" and case.birth is not None and case.birth.bad is not None


def run(case: Case) -> Outcome:
    """`value`: True when the loss does not depend on the forward value there, False when it does."""
    birth = case.birth
    assert birth is not None and birth.bad is not None
    lineage = case.lineage
    node = lineage.node_of(birth.op)
    forward = None if node is None else lineage.forward_of(node)
    if forward is None or not lineage.losses:
        return Outcome(None, "")
    answers = []
    for sign in (1.0, -1.0):
        answers.append(_thrown_away(case, forward, birth.bad, sign))
        if answers[-1]:
            return Outcome(None, UNUSED.say(op=forward.base), True)
    return Outcome(None, "") if None in answers else Outcome(None, USED.say(op=forward.base), False)


def _thrown_away(case: Case, forward: Node, bad: torch.Tensor, sign: float) -> bool | None:
    """Whether the loss stays the same, and that because the value was thrown away. None when the value could
    not be changed there, or the step broke off."""
    change = _Change(forward, bad, sign)
    again = case.rerun(Changes(tracer=Witness, around=lambda: change))
    before = case.lineage.losses
    if not change.done or again.error is not None or len(again.losses) != len(before):
        return None
    pairs = [(a.detach(), b) for a, b in zip(again.losses, before, strict=True)]
    if not all(torch.equal(a, b) for a, b in pairs):
        rounding = all(not a.is_cpu and torch.allclose(a, b, rtol=1e-5, atol=0.0) for a, b in pairs)
        return None if rounding else False  # some devices add in any order
    if not isinstance(again.tracer, Witness):
        return None
    ends = _where_it_ends(case.lineage, again.tracer.lineage, forward)
    return bool(ends) and all(_throws_away(case, node, name) for node, name in ends)


def _where_it_ends(lineage: Lineage, other: Lineage, forward: Node) -> list[tuple[Node, str]]:
    """The ops that read a changed value and made the same of it as before, with the input that was
    changed."""
    changed = {forward.index}
    ends = []
    for node in lineage.downstream(forward, MOST_FOLLOWED):
        if node.phase == "backward":
            break
        twin = other.nodes.get(node.index)
        name = next((n for n, source, _ in node.inputs if source in changed), None)
        if name is None or twin is None or twin.name != node.name:
            continue
        if not _same(node.given.get(name), twin.given.get(name)):
            if all(_same(a, b) for a, b in zip(node.outputs, twin.outputs, strict=False)):
                ends.append((node, name))
            else:
                changed.add(node.index)
    return [(n, name) for n, name in ends if _reads_values(n)]


def _reads_values(node: Node) -> bool:
    """Not those that only want to know the shape, nor comparisons, which have no gradient."""
    shapes = node.base.endswith("_like") or node.base.startswith("new_")
    return not shapes and bool(node.outputs) and node.outputs[0].dtype not in ("bool", "int64")


def _same(a: Numbers | None, b: Numbers | None) -> bool:
    return a is not None and b is not None and replace(a, name=None) == replace(b, name=None)


def _throws_away(case: Case, node: Node, name: str) -> bool:
    """Whether an op ignores an input: it chooses among values, or multiplies with a mask that hangs on no
    weight. A product with a zero that was computed, x / (length of x + eps), does use it."""
    if node.base in CHOOSES:
        return True
    others = [n for n in node.given if n != name]
    if node.base in ("mul", "bmm", "mm", "mv", "dot", "baddbmm", "addmm"):
        return any(
            nature(case.lineage, node, n) == MARKS or only_data(case, case.lineage, node, n) for n in others
        )
    return False


class _Change(TorchDispatchMode):
    """Changes what one op made, at some places."""

    def __init__(self, forward: Node, bad: torch.Tensor, sign: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._forward = forward
        self._bad = bad
        self._sign = sign
        self._count = 0
        self.done = False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        self._count += 1
        if self._count == self._forward.index and str(function) == self._forward.name:
            with plain_dispatch():
                for tensor in output_tensors(made):
                    self._put(tensor)
        return made

    def _put(self, tensor: torch.Tensor) -> None:
        if not measurable(tensor) or tensor.layout is not torch.strided:
            return
        places = places_in(tensor, self._bad, self._forward.arguments)
        if places is None or not bool(places.any()):
            return
        values = tensor.detach()[places]
        size = torch.where(values.isfinite(), values.abs(), torch.zeros_like(values.abs()))
        step = self._sign * (1.2345 + 0.777 * size)
        other = torch.where(values.isfinite(), values, torch.zeros_like(values)) + step
        if self._sign > 0 and not values.is_complex():
            large = values.sign() * (torch.finfo(values.dtype).max / 8)
            other = torch.where(values.isinf(), large, other)  # what clamps an infinity clamps that too
        tensor.detach()[places] = other
        self.done = True


def places_in(made: torch.Tensor, bad: torch.Tensor, arguments: dict[str, Any]) -> torch.Tensor | None:
    """Which values of a forward op belong to the bad ones of its gradient."""
    if not bool(torch.isfinite(made).all()):
        hidden = ~torch.isfinite(made)
        return hidden & bad if made.shape == bad.shape and bool((hidden & bad).any()) else hidden
    if made.shape == bad.shape:
        return bad
    if made.dim() == bad.dim() and all(a in (1, b) for a, b in zip(made.shape, bad.shape, strict=True)):
        for d, size in enumerate(made.shape):
            bad = bad.any(dim=d, keepdim=True) if size == 1 else bad
        return bad
    dims = arguments.get("dim")
    dims = [dims] if isinstance(dims, int) else dims
    if isinstance(dims, (list, tuple)) and made.dim() == bad.dim() - len(dims):
        for d in sorted((d % bad.dim() for d in dims), reverse=True):
            bad = bad.any(dim=d)
        return bad if bad.shape == made.shape else None
    if made.dim() == 0:
        return bad.any()
    if made.numel() == bad.numel():
        return bad.reshape(made.shape)
    try:
        return bad.expand(made.shape)
    except RuntimeError:
        return torch.ones_like(made, dtype=torch.bool)
