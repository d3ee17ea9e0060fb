"""A birth in the backward pass: whose derivative it is, whether that is infinite there, and whether the loss
depends on the value at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.lineage import Node
from nanwatch.explain.mechanism import DIVIDE_BY_ZERO, INF_ARITHMETIC, INVALID_DOMAIN, LOG_OF_ZERO, SOFTMAXES
from nanwatch.explain.provenance import Seen, seen

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

ADDS_UP = frozenset(
    "mm bmm addmm baddbmm mv dot sum mean add sub convolution_backward cumsum _softmax_backward_data "
    "_log_softmax_backward_data native_layer_norm_backward native_group_norm_backward "
    "native_batch_norm_backward embedding_dense_backward index_add scatter_add index_put "
    "mkldnn_rnn_layer_backward".split()
)
"""Ops of the backward pass that make infinities out of large numbers, not out of a singular point."""

STEEP = frozenset("log log2 log10 log1p sqrt rsqrt pow reciprocal div acos asin atanh acosh".split())
"""Ops whose derivative grows without bound near a point."""

OF_ITS_INPUT = frozenset("log log2 log10 div".split())
"""Ops whose derivative divides by what they were given, not by what they made."""


@dataclass(frozen=True)
class Derivative:
    found: Seen
    forward: Node | None
    """The op of the forward pass."""
    singular: bool
    """The derivative is not finite there; otherwise only too large for the dtype."""
    hidden: bool
    """The forward op itself made something non-finite, and the loss did not show it."""
    nan: bool
    """It was NaN."""
    passes: bool
    """Something other than zero times infinity: the loss does hang on the value."""
    name: str
    places: int


def derivative_of(case: Case) -> Derivative | None:
    """None when the birth is not in one of torch's own derivatives, or only large numbers met."""
    if case.phase != "backward" or case.birth is None or case.birth.op.node is None:
        return None
    found = seen(case)
    if found is None or (found.node is not None and found.node.own_code):
        return None
    forward = None if found.node is None else found.lineage.forward_of(found.node)
    output = case.birth.output
    singular = _is_singular(case)
    if not singular and not _is_steep(case, forward) and not _left_nan(forward):
        return None
    if case.mechanism.kind == DIVIDE_BY_ZERO and forward is not None and not _held_a_zero(forward):
        return None  # what was saved for the backward is not what came back
    return Derivative(
        found,
        forward,
        singular,
        forward is not None and any(not n.finite for n in forward.outputs),
        _left_nan(forward),
        output is not None and bool(torch.isinf(output).any()) and _takes_the_gradient(case.birth),
        _name(case, forward),
        0 if case.birth.bad is None else int(case.birth.bad.sum()),
    )


def _held_a_zero(forward: Node) -> bool:
    """Whether something that the forward op was given or made can be the zero that its derivative met."""
    known = [*forward.given.values(), *(() if forward.base in OF_ITS_INPUT else forward.outputs)]
    return any(n.min is None or n.max is None or n.min <= 0 <= n.max for n in known)


def discarded(case: Case, derivative: Derivative) -> bool | None:
    """Whether the loss does not depend on the forward value where its gradient is bad. Of a NaN nothing but
    NaN can be computed: where the loss is finite, it was left out."""
    if derivative.nan:
        return True
    if derivative.passes and not derivative.hidden:
        return False
    value = case.outcome("discarded").value
    return value if isinstance(value, bool) else None


def saturated(case: Case) -> Derivative | None:
    """The birth as the derivative of an op that had made an infinity already, of which something after it
    made a number that the loss does hang on: tanh(a / 0)."""
    found = derivative_of(case)
    return found if found is not None and found.hidden and discarded(case, found) is False else None


def before_it_was_bounded(case: Case) -> BirthOp | None:
    """That op, with its operands."""
    found = saturated(case)
    node = None if found is None or found.forward is None else found.forward.op
    op = None if node is None else case.lineage.ops.get(node)
    return None if op is None else BirthOp(op)


def _left_nan(forward: Node | None) -> bool:
    return forward is not None and any(n.nan for n in forward.outputs)


def is_masked_softmax(forward: Node | None) -> bool:
    """A softmax that was given infinities on purpose: another cause's business."""
    return forward is not None and forward.base in SOFTMAXES and any(n.neginf for n in forward.given.values())


def _is_singular(case: Case) -> bool:
    """Zero divides, a pole is hit, or zero meets an infinity that the forward pass has left."""
    birth = case.birth
    assert birth is not None
    if case.mechanism.kind in (DIVIDE_BY_ZERO, LOG_OF_ZERO, INVALID_DOMAIN, INF_ARITHMETIC):
        return True
    return (
        birth.op.makes_nan
        and not birth.op.bad_inputs
        and birth.name not in ADDS_UP
        and birth.wide is not True
    )


def _takes_the_gradient(birth: BirthOp) -> bool:
    """Whether the gradient that comes in is an operand, and not only what the forward pass has left."""
    return birth.name in ("div", "mul") and len(birth.tensors) == 2


def _is_steep(case: Case, forward: Node | None) -> bool:
    birth = case.birth
    assert birth is not None
    near = birth.name in ("div", "mul", "pow", "rsqrt", "reciprocal") and not birth.narrow
    return near and forward is not None and forward.base in STEEP


def _name(case: Case, forward: Node | None) -> str:
    if forward is not None:
        return forward.base.lstrip("_")
    node = case.birth.op.node if case.birth is not None else None
    return (node or "").removesuffix("0").removesuffix("Backward") or "?"
