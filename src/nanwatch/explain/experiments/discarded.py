"""The forward value at the places where the gradient is bad is changed: does the loss notice?

A value that `where`, a mask, an index or a clamp threw away can be anything without changing the loss. Its
gradient still passes through the op that made it, where 0 times infinity is NaN.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.lineage import Lineage, Node
from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes
from nanwatch.replay.op_facts import output_tensors
from nanwatch.replay.tracer import measurable

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


THROWS_AWAY = frozenset(
    "where clamp clamp_max clamp_min hardtanh minimum maximum nan_to_num masked_fill index index_select masked_select "
    "gather select slice topk amin amax min max relu".split()
)


def applies(case: Case) -> bool:
    return case.phase == "backward" and case.birth is not None and case.birth.bad is not None


def run(case: Case) -> Outcome:
    """`value`: True when the loss does not depend on the forward value there, False when it does."""
    birth = case.birth
    assert birth is not None and birth.bad is not None
    lineage = case.lineage
    node = lineage.node_of(birth.op)
    forward = None if node is None else lineage.forward_of(node)
    if forward is None or not lineage.losses or forward.phase == "backward":
        return Outcome(None, "")
    up = _same_loss(case, forward, birth.bad, 1.0)
    down = True if up and not _infinite(forward) else _same_loss(case, forward, birth.bad, -1.0)
    if up is None and down is None:
        return Outcome(None, "")
    if down or (up and (not _infinite(forward) or _is_cut_off(lineage, forward))):
        return Outcome(None, UNUSED.say(op=forward.base), True)
    return Outcome(None, USED.say(op=forward.base), False)


def _infinite(forward: Node) -> bool:
    return any(n.posinf or n.neginf for n in forward.outputs)


def _is_cut_off(lineage: Lineage, forward: Node) -> bool:
    """Whether the op that hides the infinity throws it away, and does not compute with it (1 / inf is 0)."""
    hider = next(
        (
            n
            for n in lineage.downstream(forward)
            if any(not g.finite for g in n.given.values()) and all(o.finite for o in n.outputs)
        ),
        None,
    )
    return hider is not None and hider.base in THROWS_AWAY


def _same_loss(case: Case, forward: Node, bad: torch.Tensor, sign: float) -> bool | None:
    """None when the value could not be changed there, or the step broke off."""
    change = _Change(forward, bad, sign)
    again = case.rerun(Changes(around=lambda: change))
    before = case.lineage.losses
    if not change.done or again.error is not None or len(again.losses) != len(before):
        return None
    return all(torch.equal(a.detach(), b) for a, b in zip(again.losses, before, strict=True))


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
            with torch.no_grad():
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
        other = torch.where(values.isfinite(), values, torch.zeros_like(values)) + self._sign * (1 + size)
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
