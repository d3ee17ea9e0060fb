"""Infinities that went into a sum of products. A mask is added to scores or chooses among values; what a
matrix product or a convolution is given is data, whoever wrote it, and no infinity belongs there."""

from __future__ import annotations

from nanwatch.replay.trace import Op

SUMS_OF_PRODUCTS = frozenset(
    "mm addmm bmm baddbmm matmul linear mv addmv dot convolution conv1d conv2d conv3d einsum".split()
)


def multiplied(path: list[Op]) -> set[int]:
    """Of these ops, oldest first: those from which an infinity reached such a sum, and the sums."""
    found: set[int | None] = set()
    for op in reversed(path):
        if base_of(op) in SUMS_OF_PRODUCTS and op.bad_inputs:
            found.add(op.index)
        if op.index in found:
            found.update(o.source for o in op.bad_inputs)
    return {index for index in found if index is not None}


def base_of(op: Op) -> str:
    return op.name.split(".")[1].removesuffix("_") if "." in op.name else op.name
