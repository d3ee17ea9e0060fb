"""The birth op and its operands: what it was given where its output is not finite."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch

from nanwatch.replay.op_facts import op_facts, output_tensors
from nanwatch.replay.trace import Op
from nanwatch.replay.tracer import measurable

HALVES = (torch.float16, torch.bfloat16)
NARROW = (*HALVES, torch.float8_e4m3fn, torch.float8_e5m2)


class BirthOp:
    """One traced op, with copies of its operands where they were kept. Everything is worked out when asked
    for; what cannot be known is None."""

    def __init__(self, op: Op) -> None:
        self.op = op

    @property
    def name(self) -> str:
        """ "div" for aten.div.Tensor, aten.div_.Scalar and aten._foreach_div.List."""
        base = self.op.name.split(".")[1] if "." in self.op.name else self.op.name
        base = base.removeprefix("_foreach_")
        return base.removesuffix("_") if not base.endswith("__") else base

    @property
    def arguments(self) -> dict[str, Any]:
        """By their names in the op's schema; empty when they were too large to keep."""
        if self.op.call is None:
            return {}
        function, args, kwargs = self.op.call
        return {**dict(zip(op_facts(function).names, args, strict=False)), **kwargs}

    def tensor(self, name: str) -> torch.Tensor | None:
        value = self.arguments.get(name)
        return value if isinstance(value, torch.Tensor) else None

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        return {n: v for n, v in self.arguments.items() if isinstance(v, torch.Tensor)}

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
        """Where the output is not finite."""
        return None if self.output is None else ~torch.isfinite(self.output.detach())

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of what the op made."""
        if self.output is not None:
            return self.output.dtype
        name = self.op.outputs[0].numbers.dtype if self.op.outputs else ""
        found = getattr(torch, name, None)
        return found if isinstance(found, torch.dtype) else None

    @property
    def narrow(self) -> bool:
        """Whether the op made half or quarter precision."""
        return self.dtype in NARROW

    def at_bad(self, name: str) -> torch.Tensor | None:
        """The values of an operand at the places where the output is bad, as float64; None when the operand
        and the output do not belong together value by value."""
        value = self.arguments.get(name)
        if self.bad is None or value is None:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return torch.full((int(self.bad.sum()),), float(value), dtype=torch.float64)
        if not isinstance(value, torch.Tensor) or not measurable(value):
            return None
        try:
            spread = value.detach().expand(self.bad.shape)
        except RuntimeError:
            return None
        found = spread[self.bad]
        return found.abs().double() if found.is_complex() else found.double()

    def again(self, change: Any = None) -> list[torch.Tensor] | None:
        """The op made again on its operands, each given through `change(name, tensor)`; None if it cannot."""
        if self.op.call is None:
            return None
        function, args, kwargs = self.op.call
        names = op_facts(function).names

        def given(name: str, value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                copy = value.detach().clone()
                return copy if change is None else change(name, copy)
            if isinstance(value, (list, tuple)):
                return [given(f"{name}[{i}]", item) for i, item in enumerate(value)]
            return value

        try:
            with torch.no_grad():
                made = function(
                    *(given(n, v) for n, v in zip(names, args, strict=False)),
                    **{n: given(n, v) for n, v in kwargs.items()},
                )
        except Exception:
            return None
        return [t for t in output_tensors(made) if measurable(t)]

    @cached_property
    def wide(self) -> bool | None:
        """Whether the same op on the same operands is finite in float64: then only the dtype's range or
        resolution was too small. None when it could not be run."""
        if self.op.call is None:
            return None
        function, args, kwargs = self.op.call
        dtypes = [
            n
            for n, v in {**dict(zip(op_facts(function).names, args, strict=False)), **kwargs}.items()
            if isinstance(v, torch.dtype)
        ]
        if dtypes:
            return self._cast_is_finite()
        made = self.again(lambda _, t: t.double() if t.is_floating_point() else t)
        if not made:
            return None
        return all(bool(torch.isfinite(t).all()) for t in made)

    def _cast_is_finite(self) -> bool | None:
        """A cast: finite in float64 exactly when what was cast is finite."""
        given = [t for t in self.tensors.values() if measurable(t)]
        return all(bool(torch.isfinite(t).all()) for t in given) if given else None
