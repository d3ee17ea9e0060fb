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
        if (
            not isinstance(index, torch.Tensor)
            or index.dtype in (torch.bool, torch.uint8)
            or not index.numel()
        ):
            return index
        below = index < 0
        if not bool(below.any()):
            return index
        size = table.shape[dim] if dim < table.dim() and of <= table.dim() else table.numel()
        rows = below.reshape(len(below), -1).any(1).nonzero().reshape(-1) if below.dim() else torch.zeros(1)
        self.found.append(
            Lookup(
                int(index.min()),
                int(size),
                len(below) if below.dim() else 1,
                tuple(int(i) for i in rows.tolist()),
            )
        )
        return torch.where(below, torch.full_like(index, min(self._valid, int(size) - 1)), index)


def applies(case: Case) -> bool:
    return bool(case.model_calls)


def run(case: Case) -> Outcome:
    """`value`: the lookups. Which index would have been right nobody knows: the first is tried, then the second."""
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
