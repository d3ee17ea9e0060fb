"""What the tracer writes down: the ops through which a non-finite value passed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from nanwatch.records import Numbers
from nanwatch.replay.fresh import Fresh
from nanwatch.watching.module_calls import path_of
from nanwatch.watching.stack import Stack, is_users


@dataclass(slots=True)
class Operand:
    """A tensor that an op read or wrote."""

    numbers: Numbers
    key: int
    source: int | None = None
    """Of an input that is not finite: the index of the op that wrote it, None if no traced op did."""
    value: torch.Tensor | None = None
    """Of an input that is not finite and comes from outside the trace: the tensor itself."""

    from_python: bool = False
    """A number of the program's text that torch made a tensor of, such as in `x[2] = float("nan")`."""

    is_a_mask: bool = False
    """Infinities that the model holds on purpose."""
    from_forward: bool = False
    """Of an input of a backward op: the forward pass made it, or it is a weight; it is no gradient."""

    @property
    def bad(self) -> bool:
        return not self.numbers.finite


@dataclass(slots=True)
class Op:
    """One traced op with something non-finite in or out."""

    index: int
    name: str
    step: int
    phase: str
    modules: tuple[nn.Module, ...]
    stack: Stack
    node: str | None
    inputs: list[Operand]
    outputs: list[Operand]
    constants: list[float]
    arguments: str
    call: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = None
    """The op with copies of its operands, to run it again; kept for births only."""
    output: torch.Tensor | None = None
    """Of a birth: the first bad output, copied."""
    is_view: bool = False
    silently_wrong: bool = False
    """It turned an overflow into a zero that is not the true value."""
    range_only: bool = False
    """The infinities it made are numbers in a wider dtype."""
    roots: int = 0
    """How many models had already returned in this step."""
    usual: bool = False
    """The same line made infinities with the same op in earlier steps, and nothing came of it."""
    lived_with: bool = False
    """The same line was given NaN, or wrote NaN down, in earlier steps that ended well."""
    fresh: Fresh | None = None
    """What it made itself beside the bad values it was handed; None if nothing, or if nobody can tell."""
    born: torch.Tensor | None = None
    """Of a birth with fresh values: where they are in its output."""
    asked_about: bool = False
    """The program had asked whether what it was given is infinite, and means to take it out with this op."""

    @property
    def after_root(self) -> bool:
        return self.roots > 0

    @property
    def module(self) -> str | None:
        return path_of(self.modules)

    @property
    def site(self) -> tuple[Any, ...]:
        """What the op is, which instruction of the program's own code asked for it, and the signs of the
        infinities it made: a score of -inf is a weight of 0, one of +inf is NaN."""
        own = next((place for place in self.stack if is_users(place[0])), None)
        if self.fresh is not None and self.fresh.infinite:
            return (self.name, own, (bool(self.fresh.posinf), bool(self.fresh.neginf)))
        signs = (any(o.numbers.posinf for o in self.outputs), any(o.numbers.neginf for o in self.outputs))
        return (self.name, own, signs)

    @property
    def place(self) -> tuple[Any, ...]:
        """Its site without the signs."""
        return self.site[:2]

    @property
    def sites_alike(self) -> list[tuple[Any, ...]]:
        """Its site, and those with fewer signs."""
        name, own, (plus, minus) = self.site
        signs = {(plus, minus), (plus, False), (False, minus)} - {(False, False)}
        return [(name, own, each) for each in signs]

    @property
    def bad_inputs(self) -> list[Operand]:
        return [o for o in self.inputs if o.bad]

    @property
    def bad_outputs(self) -> list[Operand]:
        return [o for o in self.outputs if o.bad]

    @property
    def makes_nan(self) -> bool:
        if self.fresh is not None and self.fresh.nan:
            return True
        given = any(o.numbers.nan for o in self.inputs if not o.from_python)
        return any(o.numbers.nan for o in self.outputs) and not given

    @property
    def makes_inf(self) -> bool:
        """Infinite out of finite inputs (a NaN beside it is makes_nan's business)."""
        if self.fresh is not None and self.fresh.infinite:
            return True
        return bool(self.bad_outputs) and all(o.from_python for o in self.bad_inputs)

    @property
    def turns_inf_into_nan(self) -> bool:
        if self.fresh is not None:
            return self.fresh.nan_of_inf > 0
        return any(o.numbers.nan for o in self.outputs) and bool(self.bad_inputs)

    @property
    def is_given_nan(self) -> bool:
        """NaN came in here from outside of the trace, or was written down here by the program."""
        return self.writes_nan_down or any(o.source is None and o.numbers.nan for o in self.inputs)

    @property
    def writes_nan_down(self) -> bool:
        """`y[2] = float("nan")`: a value that is missing."""
        return any(map(math.isnan, self.constants)) or any(
            o.from_python and o.numbers.nan for o in self.bad_inputs
        )

    @property
    def hides(self) -> bool:
        return bool(self.bad_inputs) and not self.bad_outputs and not self._asks_for_the_shape_alone

    @property
    def _asks_for_the_shape_alone(self) -> bool:
        """`ones_like`, `new_zeros`: what is in the tensor does not matter to it."""
        base = self.name.split(".")[1] if "." in self.name else self.name
        return base.endswith("_like") or base.startswith("new_")

    @property
    def deliberate(self) -> bool:
        """The infinities it makes were asked for: a constant in the call, or the log of a 0/1 mask; or they
        were there before, and the program can live with them."""
        if any(o.numbers.nan for o in self.outputs) or self.phase == "optimizer":
            return False
        if self.constants or self.usual or (self.bad_inputs and self.fresh is None):
            return True
        return self.name.startswith("aten.log.") and all(_zero_or_one(o.numbers) for o in self.inputs)


def written_by(ops: list[Op]) -> list[Operand]:
    """What is not finite in what these made."""
    return [operand for op in ops for operand in op.bad_outputs]


PICKS = ("gather", "index", "index_select", "take")


def picks(op: Op) -> bool:
    """Whether it takes entries out of a tensor by their index."""
    return "." in op.name and op.name.split(".")[1] in PICKS


def _zero_or_one(n: Numbers) -> bool:
    """Whether the tensor can only hold zeros and ones: then its sum of squares is its sum."""
    if n.min is None or n.max is None or n.mean is None or n.norm is None or n.count == 0:
        return False
    total = n.mean * n.count
    return n.min == 0 and n.max == 1 and abs(n.norm**2 - total) <= 1e-3 * max(total, 1)


@dataclass
class Trace:
    """All that one tracer saw, oldest first."""

    ops: dict[int, Op] = field(default_factory=dict)

    def ancestors(self, start: list[int]) -> list[Op]:
        """The ops from which non-finite values reached the ops in `start`, oldest first."""
        seen: set[int] = set()
        waiting = list(start)
        while waiting:
            index = waiting.pop()
            if index in seen or index not in self.ops:
                continue
            seen.add(index)
            given = [o for o in self.ops[index].bad_inputs if not o.is_a_mask]
            waiting += [o.source for o in given if o.source is not None]
        return [self.ops[i] for i in sorted(seen)]

    def readers(self, index: int) -> list[Op]:
        """The ops that read what op `index` made."""
        return [op for op in self.ops.values() if any(o.source == index for o in op.inputs)]
