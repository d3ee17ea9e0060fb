"""What an operand is made of: marks that were counted, weights of the model, a number of the program's
text, or values. Decided from dtypes, values and the ops that made it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.lineage import Lineage, Node
from nanwatch.explain.mechanism import Mechanism, mechanism_of
from nanwatch.records import Numbers
from nanwatch.watching.storages import key_of

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

MARKS, COUNT, VALUES = "marks", "count", "values"
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
HANDS_ON = frozenset(
    "_to_copy to type_as clone detach alias contiguous copy expand_copy view_copy lift_fresh select slice "
    "index index_select gather masked_select take unsqueeze squeeze view _unsafe_view reshape expand permute "
    "transpose t repeat stack cat flatten relu clamp clamp_min abs maximum masked_fill where to_dense "
    "_to_dense values _coalesced flip roll slice_scatter select_scatter index_put fill zero_ copysign".split()
)
"""Ops after which marks are still marks and counts still counts."""

COMBINES = frozenset("mul add minimum maximum logical_and logical_or bitwise_and bitwise_or sub rsub".split())
SUMS = frozenset(
    "sum nansum mean cumsum count_nonzero bincount scatter_add index_add scatter_reduce index_reduce histc "
    "dot mv mm bmm addmm baddbmm _sparse_sum segment_reduce einsum matmul".split()
)
REDUCES = SUMS | {"amax", "amin", "max", "prod", "logsumexp", "convolution", "linalg_vector_norm"}
SMOOTH = frozenset("sigmoid hardsigmoid softmax _softmax _safe_softmax exp exp2 tanh erf softplus".split())
"""Functions that reach 0 and 1 by rounding alone: a score that has saturated is no mark."""
DEEPEST = 12


def whole_and_positive(values: torch.Tensor) -> bool:
    """Whether these can be counts: no sign, no fraction."""
    flat = values.detach().double()
    return bool(((flat >= 0) & (flat == flat.floor())).all())


def zero_or_one(n: Numbers) -> bool:
    """Whether the tensor holds nothing but zeros and ones, and a one: then its sum of squares is its sum. A
    single number that happens to be 1 tells nothing."""
    if n.count == 1 or n.min not in (0, 1) or n.max != 1 or n.mean is None or n.norm is None:
        return False
    total = n.mean * n.count
    return abs(n.norm**2 - total) <= 1e-3 * max(total, 1)


def nature(lineage: Lineage, node: Node, name: str, depth: int = 0) -> str:
    """What the input `name` of `node` is: MARKS, COUNT or VALUES."""
    measured = node.given.get(name)
    if measured is None or depth > DEEPEST or (measured.min or 0) < 0:
        return VALUES
    if measured.dtype == "bool" or (zero_or_one(measured) and not _saturated(lineage, node, name)):
        return MARKS
    maker = lineage.maker(node, name)
    if measured.dtype in INTEGERS and (measured.min, measured.max) == (0, 0) and maker is None:
        return MARKS
    if maker is None:
        return VALUES
    if maker.base in SUMS:
        if maker.base in ("bincount", "count_nonzero", "histc"):
            return COUNT
        summed = [nature(lineage, maker, n, depth + 1) for n in _summed(maker)]
        return COUNT if summed and all(kind in (MARKS, COUNT) for kind in summed) else VALUES
    if maker.base in HANDS_ON or maker.base in COMBINES or maker.is_view:
        return _of_several(lineage, maker, depth)
    if maker.base in ("div", "true_divide") and "other" not in maker.given:
        return nature(lineage, maker, "self", depth + 1)
    return VALUES


def _saturated(lineage: Lineage, node: Node, name: str) -> bool:
    """Whether a smooth function made these values, and they were only handed on since."""
    for _ in range(DEEPEST):
        maker = lineage.maker(node, name)
        if maker is None or maker.base in SMOOTH:
            return maker is not None
        if not (maker.base in HANDS_ON or maker.is_view) or "self" not in maker.given:
            return False
        node, name = maker, "self"
    return False


def _of_several(lineage: Lineage, maker: Node, depth: int) -> str:
    if maker.base in ("index", "gather", "index_select", "take", "select", "slice", "masked_select"):
        names = ["self"]
    else:
        names = [
            n for n in maker.given if n not in ("mask", "condition", "index") and not n.startswith("indices")
        ]
    kinds = [nature(lineage, maker, n, depth + 1) for n in names]
    kinds += [
        MARKS for v in maker.arguments.values() if v in (0, 1) and maker.base in ("masked_fill", "where")
    ]
    if not kinds or VALUES in kinds:
        return VALUES
    return COUNT if COUNT in kinds or maker.base in ("add", "sub", "rsub") else MARKS


def _summed(maker: Node) -> list[str]:
    """The inputs whose values a sum adds up. A product of matrices adds up products: all of them count."""
    if maker.base in ("scatter_add", "scatter_reduce", "index_put"):
        return [n for n in maker.given if n in ("src", "values")]
    if maker.base in ("index_add", "index_reduce"):
        return [n for n in maker.given if n == "source"]
    if maker.base == "segment_reduce":
        return [n for n in maker.given if n == "data"]
    return [n for n in maker.given if n not in ("index", "indices")]


def made_by(lineage: Lineage, node: Node, name: str) -> Iterator[Node]:
    """The op that made an input, past those that only hand it on, first to last."""
    maker = lineage.maker(node, name)
    for _ in range(DEEPEST):
        if maker is None:
            return
        yield maker
        if maker.base not in HANDS_ON and not _scales(maker):
            return
        maker = lineage.maker(maker, "self") or lineage.maker(maker, "tensors[0]")


def _scales(maker: Node) -> bool:
    """A product with a plain number, or the same with the other sign."""
    return maker.base == "neg" or (maker.base in ("mul", "div") and len(maker.given) == 1)


def is_reduced(lineage: Lineage, node: Node, name: str) -> bool:
    """Whether the input was added up from many values."""
    return any(maker.base in REDUCES for maker in made_by(lineage, node, name))


def summed_weights(lineage: Lineage, node: Node) -> Numbers | None:
    """Of a quotient sum(x * w) / sum(w): the numbers of w, the weights it is a mean under; None for
    others."""
    below = next((m for m in made_by(lineage, node, "other") if m.base in ("sum", "mean", "nansum")), None)
    above = next((m for m in made_by(lineage, node, "self") if m.base in REDUCES), None)
    if below is None or above is None:
        return None
    mine = _sources(lineage, below, "self")
    if above.base in ("mm", "bmm", "mv", "dot"):  # not with something added to it
        factors = [set(_sources(lineage, above, n)) for n in above.given]
    else:
        product = next(
            (m for m in made_by(lineage, above, "self") if m.base in ("mul", "where", "masked_fill")), None
        )
        factors = [] if product is None else [set(_sources(lineage, product, n)) for n in product.given]
    return below.given.get("self") if any(mine & factor for factor in factors) else None


def _sources(lineage: Lineage, node: Node, name: str) -> set[int]:
    """The memory of an input and of what was only handed on to it."""
    key = lineage.key(node, name)
    found = set() if key is None else {key}
    for maker in made_by(lineage, node, name):
        if maker.base in HANDS_ON:
            found |= {k for _, _, k in maker.inputs}
    return found


def is_state(case: Case, lineage: Lineage, node: Node, name: str) -> bool:
    """Whether the operand is a weight or a buffer of a model as it is, or a part of one."""
    makers = list(made_by(lineage, node, name))
    if any(m.base not in HANDS_ON and not _scales(m) for m in makers):
        return False
    last, name = (makers[-1], "self") if makers else (node, name)
    key = lineage.key(last, name)
    return key is not None and key in _state_of(case)


def _state_of(case: Case) -> set[int]:
    return {key_of(t) for m in case.models for t in (*m.parameters(), *m.buffers())}


def same_memory(found: Seen, name: str, other: str) -> bool:
    """Whether two inputs of the op are the same tensor, or views of one."""
    node = found.node
    return node is not None and found.lineage.key(node, name) == found.lineage.key(node, other)


def only_data(case: Case, lineage: Lineage, node: Node, name: str) -> bool:
    """Whether the operand was computed from the batch alone, without any weight."""
    leaves = lineage.leaves_of(node, name)
    if not leaves and lineage.maker(node, name) is None:
        return False
    state = _state_of(case)
    return not any(t.requires_grad or key_of(t) in state for t in leaves)


def mixes_state(case: Case, lineage: Lineage, node: Node, name: str) -> bool:
    """Whether the operand is a product with weights of a model: a layer, not a sum over data."""
    maker = next((m for m in made_by(lineage, node, name) if m.base in REDUCES), None)
    state = _state_of(case)
    return maker is not None and any(_sources(lineage, maker, n) & state for n in maker.given)


def negative_index(lineage: Lineage, node: Node, names: tuple[str, ...]) -> Numbers | None:
    """An index below zero through which an operand was looked up: it counts from the end, maybe by
    mistake."""
    for name in names:
        maker = lineage.maker(node, name)
        for each in () if maker is None else (maker, *lineage.upstream(maker, 20)):
            if each.base in ("index", "embedding", "gather", "index_select", "take"):
                for given, measured in each.given.items():
                    if given.startswith(("indices", "index")) and (measured.min or 0) < 0:
                        return measured
    return None


def empty_ancestor(lineage: Lineage, node: Node, name: str) -> Numbers | None:
    """A tensor without any value from which the input was computed, past no more than a few ops."""
    maker = lineage.maker(node, name)
    for each in (node,) if maker is None else (node, maker, *lineage.upstream(maker, 6)):
        for given, measured in each.given.items():
            if measured.count == 0 and (each is not node or given == name):
                return measured
    return None


@dataclass(eq=False)
class Seen:
    """The birth op as the replay saw it."""

    birth: BirthOp
    node: Node | None
    lineage: Lineage

    @cached_property
    def mechanism(self) -> Mechanism:
        return mechanism_of(self.birth)


def seen(case: Case) -> Seen | None:
    """The birth op in the lineage; its operands from there if they were not kept before."""
    birth = case.birth
    if birth is None:
        return None
    lineage = case.lineage
    node = lineage.node_of(birth.op)
    if birth.op.call is None and node is not None and node.op is not None:
        birth = BirthOp(lineage.ops[node.op])
    if birth.op.output is None and birth.op.call is not None:
        birth = _with_output(birth)
    return Seen(birth, node, lineage)


def is_derivative(case: Case, found: Seen) -> bool:
    """Whether one of torch's own derivatives gave birth, and not the arithmetic that the program does in its
    backward: in a hook or a function of its own."""
    if case.phase != "backward" or found.birth.op.node is None:
        return False
    return found.node is None or not found.node.own_code


def _with_output(birth: BirthOp) -> BirthOp:
    """What it made was not kept: the op is made once more on the operands that were."""
    made = next((t for t in birth.again() or () if not bool(torch.isfinite(t).all())), None)
    return birth if made is None else BirthOp(replace(birth.op, output=made))


def zeros_at_bad(birth: BirthOp, name: str) -> bool:
    values = birth.at_bad(name)
    return values is not None and bool(values.numel()) and bool((values == 0).all())


def how_many(birth: BirthOp, name: str) -> tuple[int, int]:
    """(how many values of an operand are zero, how many it has)."""
    value = birth.arguments.get(name)
    if isinstance(value, torch.Tensor) and value.device.type != "meta" and value.layout is torch.strided:
        return int((value == 0).sum()), value.numel()
    return 1, 1
