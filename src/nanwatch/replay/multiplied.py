"""Infinities that went into a sum of products. A mask is added to scores or chooses among values; what a
matrix product or a convolution is given is data, whoever wrote it, and no infinity belongs there."""

from __future__ import annotations

from nanwatch.replay.trace import Op, Operand

SUMS_OF_PRODUCTS = frozenset(
    "mm addmm bmm baddbmm matmul linear mv addmv dot convolution conv1d conv2d conv3d einsum".split()
)

ADDED = ("bias", "self")
"""What such a sum is given to begin with, by its name in the schema."""
WITH_SELF_ADDED = frozenset("addmm addmv baddbmm".split())


def multiplied(path: list[Op]) -> set[int]:
    """Of these ops, oldest first: those from which an infinity reached such a sum, and the sums."""
    found: set[int | None] = set()
    for op in reversed(path):
        factors = bad_factors(op)
        if factors:
            found.add(op.index)
        if op.index in found:
            found.update(o.source for o in factors or op.bad_inputs)
    return {index for index in found if index is not None}


def bad_factors(op: Op) -> list[Operand]:
    """Of a sum of products: the bad operands that are multiplied. A bias is only added; +inf is none."""
    base = base_of(op)
    if base not in SUMS_OF_PRODUCTS:
        return []
    added = ADDED if base in WITH_SELF_ADDED else ADDED[:1]
    return [o for o in op.bad_inputs if o.numbers.posinf or o.numbers.name not in added]


def base_of(op: Op) -> str:
    return op.name.split(".")[1].removesuffix("_") if "." in op.name else op.name
