"""Masks by a large number: is the value that became infinite one that the program wrote down to hide things?

A mask's constant is told from a computed value by three marks: it is the least number of some dtype, or the
operand holds nothing else but it and zero, or an op before has it as a plain number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.experiments.fill_values import Lost
from nanwatch.explain.lineage import Lineage, Node
from nanwatch.explain.mechanism import CONSTANTS, INF_ARITHMETIC, INHERITED, MASKED_ROW, OVERFLOW

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

LEAST = tuple(torch.finfo(d).min for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64))
LARGE = 1e3
"""Nobody masks with less."""
FAR = 16
"""Ops between the fill and the overflow."""


@dataclass(frozen=True)
class MaskConstant:
    operand: str
    value: float
    count: int
    """At how many of the bad places."""
    lost: Lost | None = None
    """Where no op saw the number: the call that the program wrote."""


def mask_constant(case: Case) -> MaskConstant | None:
    """The constant of a mask that became infinite at the birth op, or before it without any op seeing it."""
    birth = case.birth
    if birth is not None and case.mechanism.kind == OVERFLOW and case.phase != "optimizer":
        return _at_birth(case, birth)
    if birth is not None and case.mechanism.kind in (MASKED_ROW, INF_ARITHMETIC, INHERITED):
        return _before_birth(case)
    return None


def _before_birth(case: Case) -> MaskConstant | None:
    if case.phase not in ("forward", "loss", "backward"):
        return None
    lost = case.outcome("fill-values").value
    return MaskConstant("", lost.constant, 0, lost) if isinstance(lost, Lost) else None


def _at_birth(case: Case, birth: BirthOp) -> MaskConstant | None:
    count = 0 if birth.bad is None else int(birth.bad.sum())
    for name in CONSTANTS:
        given = birth.arguments.get(name)
        constant = None if isinstance(given, torch.Tensor) else birth.number(name)
        if constant is not None and _beyond(constant, birth) and _only_marks(birth, name, constant):
            return MaskConstant(name, constant, count) if _hides(case, birth) else None
    if birth.output is None or not bool((birth.output == float("-inf")).any()):
        return None
    for name in birth.tensors:
        values = birth.at_bad(name)
        if values is None or not values.numel() or float(values.min()) != float(values.max()):
            continue
        value = float(values[0])
        if value <= -LARGE and _written_down(case, birth, name, value):
            return MaskConstant(name, value, count)
    return None


def _beyond(constant: float, birth: BirthOp) -> bool:
    dtype = birth.dtype
    return dtype is not None and dtype.is_floating_point and abs(constant) > torch.finfo(dtype).max


def _only_marks(birth: BirthOp, name: str, constant: float) -> bool:
    """Whether the number meets zeros and ones only (it is switched on and off), or is set as it is."""
    others = [t for t in birth.tensors.values() if t.is_floating_point() or t.dtype is torch.bool]
    if not others or (birth.name in ("add", "where") and name == "other" and constant < 0):
        return True
    marks = others[-1] if name == "alpha" else others[0]
    return marks.numel() > 0 and bool(((marks == 0) | (marks == 1)).all())


def _hides(case: Case, birth: BirthOp) -> bool:
    """Whether -inf comes of it: at once, or where the infinity is subtracted."""
    if birth.output is not None and bool((birth.output == float("-inf")).any()):
        return True
    node = case.lineage.node_of(birth.op)
    if node is None:
        return False
    return any(n.neginf for later in case.lineage.downstream(node, 8) for n in later.outputs)


def _written_down(case: Case, birth: BirthOp, name: str, value: float) -> bool:
    if any(value == least or value == float(torch.tensor(least).to(torch.bfloat16)) for least in LEAST):
        return True
    operand = birth.tensors[name]
    switched = bool(((operand == value) | (operand == 0)).all()) and bool((operand == 0).any())
    if switched and (int((operand == value).sum()) > 1 or _round(value)):
        return True
    lineage = case.lineage
    node = lineage.node_of(birth.op)
    return node is not None and any(_holds(number, value) for number in _numbers_before(lineage, node, name))


def _round(value: float) -> bool:
    """One digit and zeros, but for the rounding of a narrow dtype."""
    return abs(float(f"{value:.0e}") - value) <= 2e-3 * abs(value)


def _holds(number: float, value: float) -> bool:
    """Whether it is this number, or was before it was rounded to a narrow dtype."""
    return abs(number) >= LARGE and abs(abs(number) - abs(value)) <= 0.01 * abs(value)


def _numbers_before(lineage: Lineage, node: Node, name: str) -> Iterator[float]:
    """The plain numbers in the ops that made an operand, and those that came in as a tensor of one value."""
    maker = lineage.maker(node, name)
    if maker is None:
        return
    for each in (maker, *lineage.upstream(maker, FAR)):
        for key, constant in each.arguments.items():
            if key in CONSTANTS and isinstance(constant, (int, float)) and not isinstance(constant, bool):
                yield float(constant)
        for _, source, key_ in each.inputs:
            leaf = lineage.leaves.get(key_) if source is None else None
            if leaf is not None and leaf.numel() == 1 and not leaf.requires_grad and not leaf.is_complex():
                yield float(leaf)
