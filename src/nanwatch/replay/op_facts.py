"""What an aten op does to its arguments, read once from its schema."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from nanwatch.watching.ranks import is_collective

ALLOCATES = ("empty", "new_empty", "resize_", "_empty_affine_quantized")
BRINGS_IN = ("set_", "lift_fresh", "lift")
"""Ops that make a tensor of memory that was filled elsewhere: a file, another process, Python numbers."""
OVERWRITES = frozenset(
    "copy_ fill_ zero_ normal_ uniform_ bernoulli_ random_ exponential_ log_normal_ cauchy_ geometric_ set_ "
    "detach_ resize_ resize_as_ _foreach_copy_ _foreach_zero_".split()
)
"""In-place ops whose result does not depend on what was there before."""

CASTS = frozenset("_to_copy to type_as".split())
"""Conversions; inference mode shows the last two whole."""

UPDATED_BY_NAME = ("running_mean", "running_var")
"""Arguments that batch norm writes although its schema does not say so."""


@dataclass(frozen=True)
class OpFacts:
    name: str
    written: frozenset[str]
    reads_what_it_writes: bool
    allocates: bool
    brings_in: bool
    is_view: bool
    may_copy: bool
    """A view by its schema that copies where it must: `to`, `reshape`, as inference mode shows them whole."""
    is_collective: bool
    is_of_an_exchange: bool
    """A collective, or an op that prepares the memory for one."""
    names: tuple[str, ...]

    def reads(self, name: str) -> bool:
        """Whether the values of the input `name` matter to it."""
        return self.reads_what_it_writes or not self.writes(name)

    def writes(self, name: str) -> bool:
        """Whether it writes to the input `name`, which may be one of a list: "self[0]"."""
        return name.split("[")[0] in self.written


@cache
def op_facts(function: Any) -> OpFacts:
    schema = function._schema
    base = schema.name.split("::")[-1]
    names = tuple(a.name for a in schema.arguments)
    written = {a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write}
    written |= {name for name in names if name in UPDATED_BY_NAME and "backward" not in base}
    return OpFacts(
        name=str(function),
        written=frozenset(written),
        reads_what_it_writes=base not in OVERWRITES and not written <= {"out"},
        allocates=base.startswith(ALLOCATES[:2]) or base in ALLOCATES,
        brings_in=base in BRINGS_IN,
        is_view=bool(function.is_view),
        may_copy=bool(function.is_view) and _is_composite(function),
        is_collective=is_collective(function),
        is_of_an_exchange=is_collective(function) or function.namespace == "fsdp",
        names=names,
    )


def _is_composite(function: Any) -> bool:
    """Whether torch takes it apart into other ops, except in inference mode."""
    return bool(function.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd))


def named_arguments(facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """(name in the schema, value) of each argument that was given."""
    return [*zip(facts.names, args, strict=False), *kwargs.items()]


def tensors_by_name(arguments: list[tuple[str, Any]]) -> list[tuple[str, torch.Tensor]]:
    """The tensors among the arguments; those in lists are numbered."""
    found = []
    for name, value in arguments:
        if isinstance(value, torch.Tensor):
            found.append((name, value))
        elif isinstance(value, (list, tuple)):
            found += [(f"{name}[{i}]", v) for i, v in enumerate(value) if isinstance(v, torch.Tensor)]
    return found


def output_tensors(outputs: Any) -> list[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if isinstance(outputs, (list, tuple)):
        return [t for item in outputs for t in output_tensors(item)]
    return []


def is_a_bad_number(facts: OpFacts, arguments: list[tuple[str, Any]]) -> bool:
    """`scalar_tensor(nan)`: a number of somebody's text that was bad before it became a tensor."""
    return facts.name.startswith("aten.scalar_tensor.") and bool(infinite_constants(arguments))


def infinite_constants(arguments: list[tuple[str, Any]]) -> list[float]:
    """Plain numbers among the arguments that are NaN or infinite: somebody wrote them there."""
    found = []
    for _, value in arguments:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, float) and not math.isfinite(item):
                found.append(item)
    return found


def plain_arguments(arguments: list[tuple[str, Any]]) -> str:
    """The arguments that are no tensors, as text."""
    shown = []
    for name, value in arguments:
        if value is None or output_tensors(value):
            continue
        text = repr(value)
        shown.append(f"{name}={text if len(text) <= 60 else text[:57] + '...'}")
    return ", ".join(shown)
