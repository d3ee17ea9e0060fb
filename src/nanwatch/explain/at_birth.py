"""The step once more, with the operands of the birth op changed: wherever that op runs at that line, and
where its derivative is computed (out of what was kept from before the change)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from nanwatch.explain.case import runs_finite
from nanwatch.explain.lineage import user_frames
from nanwatch.replay.again import Again, Changes
from nanwatch.replay.op_facts import op_facts, output_tensors
from nanwatch.replay.trace import Op
from nanwatch.replay.tracer import ENGINE, OpTracer, measurable
from nanwatch.tensors import is_finite
from nanwatch.watching.module_calls import Scope
from nanwatch.watching.stack import Stack, is_library, stack_within

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

Change = Callable[[str, Any], Any]
"""(name of an operand, its value) -> what the op is given instead."""


class AtBirth(OpTracer):
    """An op tracer that gives one op of the step other operands."""

    birth: Op
    change: Change
    met: int = 0
    """How often the op was seen."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self._place = user_frames(self.birth.stack)[:1]

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        derivative = torch._C._current_autograd_node() is not None and self.birth.phase != "backward"
        if (derivative or str(function) == self.birth.name) and self._is_here(sys._getframe(1)):
            self.met += not derivative
            args, kwargs = self._changed(function, args, kwargs)
        return super().__torch_dispatch__(function, types, args, kwargs)

    def _is_here(self, frame: FrameType) -> bool:
        return user_frames(self._stack(frame))[:1] == self._place

    def _stack(self, frame: FrameType) -> Stack:
        node = torch._C._current_autograd_node()
        if node is None and self.birth.phase == "backward":
            return ()
        own = stack_within(frame, self.boundary, ENGINE if node is not None else "")
        if node is None:
            return own + self.base
        forward = self._origin_of(node)[0]
        by_program = any(not is_library(code.co_filename) for code, _ in own)
        return own + forward if by_program else forward

    def _changed(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        facts = op_facts(function)

        def given(name: str, value: Any) -> Any:
            if isinstance(value, (list, tuple)) and output_tensors(value):
                return [given(name, item) for item in value]
            if not isinstance(value, torch.Tensor):
                return self.change(name, value)
            if not measurable(value):
                return value
            with torch.no_grad():
                new = self.change(name, value)
            if new is value or name not in facts.written:
                return new
            if self.untouched is not None:
                self.untouched.about_to_write([value])
            value.copy_(new)
            return value

        names = facts.names[: len(args)]
        changed = tuple(given(n, v) for n, v in zip(names, args, strict=True))
        return changed, {n: given(n, v) for n, v in kwargs.items()}


def with_operands(case: Case, change: Change) -> Again | None:
    """The step again; None when there is no birth op, or it was not met."""
    op = case.located.op
    if op is None:
        return None
    tracer = type("AtThisBirth", (AtBirth,), {"birth": op, "change": staticmethod(change)})
    again = case.rerun(Changes(tracer=tracer, around=contextlib.nullcontext))
    return again if isinstance(again.tracer, AtBirth) and again.tracer.met else None


def finite_where_it_matters(case: Case, again: Again) -> bool | None:
    """Whether a replay came to its end finite. Where it could not go through the backward (a reentrant
    checkpoint), and the birth was before it: whether the loss is."""
    finite = runs_finite(again)
    if finite is None and case.phase in ("forward", "loss") and again.losses:
        return all(is_finite(t) for t in again.losses if measurable(t))
    return finite
