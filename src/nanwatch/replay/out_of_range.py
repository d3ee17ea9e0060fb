"""An index that points outside its table. torch raises there and then, and no value ever turns non-finite: so
the op that raised is looked at while its arguments are at hand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nanwatch.records import Numbers
from nanwatch.replay.op_call import OpCall
from nanwatch.replay.op_facts import plain_arguments
from nanwatch.tensors import numbers
from nanwatch.watching.stack import Stack

ALONG_DIM = frozenset(
    "index_select index_add index_copy index_fill gather scatter scatter_add scatter_reduce".split()
)
"""Ops that are given a table `self`, a dimension `dim` and an `index` into it."""
EMBEDDINGS = frozenset("embedding _embedding_bag _embedding_bag_forward_only".split())
BY_DIMENSION = frozenset("index index_put _index_put_impl _unsafe_index".split())
"""Ops that are given `indices`, one for each dimension; they count negative ones from the end."""
SPEAKS_OF_IT = re.compile(r"out of (range|bounds)")


@dataclass(frozen=True)
class Outside:
    """Of one argument: where it points."""

    name: str
    index: int
    """One that is outside, the farthest."""
    size: int
    """Of the table, in that dimension."""
    rows: tuple[int, ...]
    """Where in the first dimension of the argument such values are."""
    length: int
    """Of that dimension."""


@dataclass(frozen=True)
class OutOfRange:
    """The op that raised."""

    op: str
    outside: Outside
    phase: str
    modules: tuple[nn.Module, ...]
    stack: Stack
    inputs: tuple[Numbers, ...]
    arguments: str


def may_be_an_index(error: BaseException) -> bool:
    """Whether torch's message speaks of one."""
    return isinstance(error, (IndexError, RuntimeError)) and SPEAKS_OF_IT.search(str(error)) is not None


def base_of(op: str) -> str:
    """ "index_add" of "aten.index_add_.default"."""
    return op.split(".")[1].rstrip("_")


def out_of_range(call: OpCall, phase: str, stack: Stack, modules: tuple[nn.Module, ...]) -> OutOfRange | None:
    """None if every index of the op is within its table."""
    outside = _outside(call)
    if outside is None:
        return None
    measured = tuple(numbers(tensor, name) for name, tensor in call.inputs)
    return OutOfRange(
        call.facts.name, outside, phase, modules, stack, measured, plain_arguments(call.arguments)
    )


def _outside(call: OpCall) -> Outside | None:
    for name, index, size, from_the_end, ignored in _lookups(base_of(call.facts.name), dict(call.arguments)):
        if not isinstance(index, torch.Tensor) or index.dtype not in (torch.int64, torch.int32):
            continue
        wrong = (index >= size) | (index < (-size if from_the_end else 0))
        if ignored is not None:
            wrong &= index != ignored
        if bool(wrong.any()):
            return _described(name, index, wrong, size)
    return None


def _lookups(base: str, given: dict[str, Any]) -> list[tuple[str, Any, int, bool, int | None]]:
    """(argument, index, size of the table, are negative ones counted from the end, value that means none)."""
    table = given.get("self")
    if base in EMBEDDINGS:
        return [("indices", given["indices"], given["weight"].shape[0], False, None)]
    if not isinstance(table, torch.Tensor) or table.dim() == 0:
        return []
    if base in ALONG_DIM:
        return [("index", given["index"], table.shape[given["dim"]], False, None)]
    if base in BY_DIMENSION:
        found = zip(given["indices"], table.shape, strict=False)
        return [(f"indices[{i}]", index, size, True, None) for i, (index, size) in enumerate(found)]
    if base == "take":
        return [("index", given["index"], table.numel(), True, None)]
    if base in ("nll_loss_forward", "nll_loss2d_forward"):
        classes = table.shape[1] if table.dim() > 1 else table.shape[0]
        return [("target", given["target"], classes, False, given.get("ignore_index", -100))]
    return []


def _described(name: str, index: torch.Tensor, wrong: torch.Tensor, size: int) -> Outside:
    values = index[wrong]
    high, low = int(values.max()), int(values.min())
    farthest = high if high - size + 1 >= -low else low
    by_row = wrong.reshape(len(wrong), -1).any(1) if wrong.dim() else wrong.reshape(1)
    rows = tuple(int(row) for row in by_row.nonzero().reshape(-1).tolist())
    return Outside(name, farthest, int(size), rows, len(by_row))
