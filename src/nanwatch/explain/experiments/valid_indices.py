"""The step with every negative index replaced by a valid one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes

NAME = "valid-indices"
TITLE = Text("running the step with valid indices", "用有效的索引重新运行这一步")
FINITE = Text(
    "with {valid} in the place of negative indices the step runs finite", "把负索引换成 {valid} 后结果有限"
)
STILL = Text("with valid indices the step still fails", "换成有效的索引后仍然失败")
LOOKUPS = ("aten::index", "aten::_unsafe_index", "aten::index_put", "aten::index_put_", "aten::take")


INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True)
class Lookup:
    """One op that was given a negative index."""

    lowest: int
    size: int
    """Of the table, in that dimension."""
    count: int
    rows: tuple[int, ...]
    """Where in the first dimension of the index the negative ones are."""


class _Mended(TorchDispatchMode):
    def __init__(self, valid: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._valid = valid
        self.found: list[Lookup] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function._schema.name in LOOKUPS and torch._C._current_autograd_node() is None and len(args) > 1:
            given = args[1] if isinstance(args[1], (list, tuple)) else [args[1]]
            mended = [self._mend(args[0], i, dim, len(given)) for dim, i in enumerate(given)]
            args = (args[0], mended if isinstance(args[1], (list, tuple)) else mended[0], *args[2:])
        return function(*args, **(kwargs or {}))

    def _mend(self, table: torch.Tensor, index: Any, dim: int, of: int) -> Any:
        found = _lookup(table, index, dim, of)
        if found is None:
            return index
        self.found.append(found)
        return torch.where(index < 0, torch.full_like(index, min(self._valid, found.size - 1)), index)


def _lookup(table: torch.Tensor, index: Any, dim: int, of: int) -> Lookup | None:
    """None unless the index has a negative value."""
    if not isinstance(index, torch.Tensor) or index.dtype not in INTEGERS or not index.numel():
        return None
    below = index < 0
    if not bool(below.any()):
        return None
    size = table.shape[dim] if of <= table.dim() else table.numel()
    rows = below.reshape(len(below), -1).any(1).nonzero().reshape(-1).tolist() if below.dim() else [0]
    return Lookup(int(index.min()), int(size), len(below) if below.dim() else 1, tuple(map(int, rows)))


def on_tape(case: Case) -> list[Lookup]:
    """Those that the program made outside of any model, and that a replay does not make again."""
    found = []
    for entry in case.tape.entries:
        if getattr(entry.call, "__name__", "") != "__getitem__" or len(entry.args) < 2:
            continue
        table, given = entry.args[:2]
        for dim, index in enumerate(given if isinstance(given, tuple) else (given,)):
            one = _lookup(table, index, dim, dim + 1)
            found += [] if one is None else [one]
    return found


def applies(case: Case) -> bool:
    return bool(case.model_calls)


def run(case: Case) -> Outcome:
    """`value`: the lookups. Which index would have been right nobody knows: the first is tried, then the
    second."""
    lookups: list[Lookup] = []
    outcome: bool | None = None
    for valid in (0, 1):
        mode = _Mended(valid)
        finite = runs_finite(case.rerun(Changes(around=lambda mode=mode: mode)))  # type: ignore[misc]
        lookups = lookups or mode.found
        if finite:
            return Outcome(True, FINITE.say(valid=valid), lookups)
        outcome = finite if finite is not None else outcome
    return Outcome(outcome, STILL.say() if outcome is False else "", lookups)
