"""The birth op and its operands: what it was given where its output is not finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch

from nanwatch.replay.fresh import readable
from nanwatch.replay.op_facts import op_facts, output_tensors
from nanwatch.replay.trace import Op
from nanwatch.replay.tracer import CALCULATES, measurable

HALVES = (torch.float16, torch.bfloat16)
FLOAT8 = tuple(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    if hasattr(torch, name)
)
NARROW = (*HALVES, *FLOAT8)

FILLS = ("fill", "full", "full_like", "masked_fill", "where", "new_full", "constant_pad_nd")
"""Ops that are asked to put a number somewhere, whatever it is."""

SCALARS = {"scalars": "value", "scalar": "other"}
"""How an op on lists calls a plain number -> how the op on one tensor calls it."""


class BirthOp:
    """One traced op, with copies of its operands where they were kept. Everything is worked out when asked
    for; what cannot be known is None."""

    def __init__(self, op: Op) -> None:
        self.op = op

    @property
    def name(self) -> str:
        """ "div" for aten.div.Tensor, aten.div_.Scalar and aten._foreach_div.List."""
        base = self._full_name.removeprefix("_foreach_")
        return base.removesuffix("_") if not base.endswith("__") else base

    @property
    def _full_name(self) -> str:
        return self.op.name.split(".")[1] if "." in self.op.name else self.op.name

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """By their names in the op's schema; empty when they were too large to keep. Of an op on lists of
        tensors (`_foreach_…`): those of the first tensor that went bad, as if it had been alone."""
        if self.op.call is None:
            return {}
        function, args, kwargs = self.op.call
        given = {**dict(zip(op_facts(function).names, args, strict=False)), **kwargs}
        if not self._full_name.startswith("_foreach_"):
            return given
        place = next((i for i, o in enumerate(self.op.outputs) if o.bad), 0)
        return {SCALARS.get(n, n): _element(v, place) for n, v in given.items()}

    @property
    def given_no_number(self) -> float | None:
        """A plain number of the program's that is NaN, or that is Inf and calculated with: no value of a
        tensor is to blame then."""
        given = [v for v in self.arguments.values() if isinstance(v, float) and not math.isfinite(v)]
        if not given or self.name in FILLS or self.op.bad_inputs:
            return None
        return given[0] if math.isnan(given[0]) or self.name in CALCULATES else None

    def tensor(self, name: str) -> torch.Tensor | None:
        value = self.arguments.get(name)
        return value if isinstance(value, torch.Tensor) else None

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Those given one by one, then those in lists as "tensors[0]"."""
        found = {n: v for n, v in self.arguments.items() if isinstance(v, torch.Tensor)}
        for name, value in self.arguments.items():
            if isinstance(value, (list, tuple)):
                found |= {f"{name}[{i}]": v for i, v in enumerate(value) if isinstance(v, torch.Tensor)}
        return found

    def number(self, name: str) -> float | None:
        """A plain number among the arguments, or a tensor of one value."""
        value = self.arguments.get(name)
        if isinstance(value, bool) or value is None:
            return None
        if isinstance(value, (int, float)):
            return float(value)
        if isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_complex():
            return float(value)
        return None

    @property
    def output(self) -> torch.Tensor | None:
        """A copy of the first bad output."""
        return self.op.output

    @cached_property
    def bad(self) -> torch.Tensor | None:
        """Where the output is not finite; not where the op was only handed what is not."""
        if self.output is None:
            return None
        if self.op.born is not None and self.op.born.shape == self.output.shape:
            return self.op.born
        output = self.output.detach()
        return ~torch.isfinite(readable(output))

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of what the op made."""
        if self.output is not None:
            return self.output.dtype
        name = next((o.numbers.dtype for o in self.op.outputs if o.bad), "")
        found = getattr(torch, name or (self.op.outputs[0].numbers.dtype if self.op.outputs else ""), None)
        return found if isinstance(found, torch.dtype) else None

    @property
    def narrow(self) -> bool:
        """Whether the op made half or quarter precision."""
        return self.dtype in NARROW

    @property
    def reads_narrow(self) -> bool:
        """Whether the op was given half or quarter precision."""
        names = [o.numbers.dtype for o in self.op.inputs]
        return any(getattr(torch, n, None) in NARROW for n in names)

    def at_bad(self, name: str) -> torch.Tensor | None:
        """The values of an operand at the places where the output is bad, as float64; None when the operand
        and the output do not belong together value by value."""
        value = self.arguments.get(name)
        if self.bad is None or value is None:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return torch.full((int(self.bad.sum()),), float(value), dtype=torch.float64)
        if not isinstance(value, torch.Tensor) or value.device.type == "meta" or value.is_sparse:
            return None
        try:
            spread = value.detach().expand(self.bad.shape)
            found = spread[self.bad.to(spread.device)]
        except (RuntimeError, IndexError):
            return None
        return found.abs().double() if found.is_complex() else found.double()

    def again(
        self,
        change: Callable[[str, torch.Tensor], torch.Tensor] | None = None,
        dtype: torch.dtype | None = None,
    ) -> list[torch.Tensor] | None:
        """The op made again on its operands, each given through `change(name, tensor)`, and what it makes in
        `dtype` where it was told one; None if it cannot. In place of nothing: what it has written."""
        if self.op.call is None:
            return None
        function, args, kwargs = self.op.call
        facts = op_facts(function)
        copies: dict[str, torch.Tensor] = {}

        def given(name: str, value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                copy = value.detach().clone()
                copies[name] = copy if change is None else change(name, copy)
                return copies[name]
            if isinstance(value, (list, tuple)):
                return [given(f"{name}[{i}]", item) for i, item in enumerate(value)]
            return dtype if dtype is not None and _floating(value) else value

        try:
            # the program may stand in its autocast still: that would narrow again what was widened
            with torch.no_grad(), torch._C._DisableAutocast():
                made = function(
                    *(given(n, v) for n, v in zip(facts.names, args, strict=False)),
                    **{n: given(n, v) for n, v in kwargs.items()},
                )
        except Exception:
            return None
        results = output_tensors(made)
        results += [t for n, t in copies.items() if n.split("[")[0] in facts.written]
        return [t for t in results if measurable(t)]

    def finite_in(self, dtype: torch.dtype) -> bool | None:
        """Whether the same op on the same operands is finite when it works in `dtype`; None when it could
        not be run."""
        made = self.again(lambda _, t: t.to(_as_wide(t, dtype)), dtype)
        if not made:
            return None
        return all(bool(torch.isfinite(self._of_its_own(t)).all()) for t in made)

    def _of_its_own(self, made: torch.Tensor) -> torch.Tensor:
        """Without the places where the op hands on what it was given."""
        born = self.op.born
        return made if born is None or born.shape != made.shape else made[born.to(made.device)]

    @cached_property
    def wide(self) -> bool | None:
        """Whether the same op on the same operands is finite in float64: then only the dtype's range or
        resolution was too small. None when it could not be run."""
        return self.finite_in(torch.float64)

    @cached_property
    def finite_in_float32(self) -> bool | None:
        """The same in float32: then float32 has the range or the resolution."""
        return self.finite_in(torch.float32)


def _element(value: Any, place: int) -> Any:
    if isinstance(value, (list, tuple)) and place < len(value):
        return value[place]
    if isinstance(value, torch.Tensor) and value.dim() == 1 and place < len(value):
        return value[place]  # `_foreach_addcdiv.Tensor`: the numbers in one tensor
    return value


def _floating(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value.is_floating_point


def _as_wide(tensor: torch.Tensor, dtype: torch.dtype) -> torch.dtype:
    """`dtype` for tensors that are narrower, their own for all others."""
    if tensor.is_complex():
        return torch.complex128 if dtype is torch.float64 else tensor.dtype
    if not tensor.is_floating_point() or tensor.element_size() >= dtype.itemsize:
        return tensor.dtype
    return dtype
