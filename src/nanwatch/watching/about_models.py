"""What can be seen of a model without running it."""

from __future__ import annotations

import gc
import os
import sys
from types import FrameType
from typing import Any

import torch
from torch import nn

from nanwatch.watching.own_values import any_weight
from nanwatch.watching.stack import is_library
from nanwatch.watching.tape import Entry, Tape, tensors_in


def is_loss(module: nn.Module, fed: bool) -> bool:
    """A module that has nothing to learn and is `fed` with what a model made computes the loss. (So does one
    that learns, if it returns a single number: that is seen when it returns.)"""
    if isinstance(module, nn.modules.loss._Loss):
        return True
    return fed and any_weight(module) is None


METRIC = ("update", "compute", "reset")
"""What the metrics of all libraries can be told to do."""


def is_metric(module: Any) -> bool:
    return all(hasattr(module, name) for name in METRIC)


def given_what_a_model_made(args: Any, kwargs: Any, tape: Tape) -> bool:
    before: Entry | None = next((e for e in reversed(tape.entries) if e.kind == "module" and e.made), None)
    if before is None:
        return False
    made = {id(tensor) for tensor, _ in before.made}
    return any(id(t) in made or (t.requires_grad and not t.is_leaf) for t in tensors_in((args, kwargs)))


def is_compiled(module: nn.Module) -> bool:
    if "torch._dynamo" not in sys.modules:
        return False
    return any(
        m._compiled_call_impl is not None or type(m).__name__ == "OptimizedModule" for m in module.modules()
    )


def leaves_of(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The leaf tensors whose gradients a backward from `tensors` will fill."""
    found: list[torch.Tensor] = []
    seen: set[Any] = set()
    waiting = [t.grad_fn for t in tensors if t.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.append(variable)
        waiting += [following for following, _ in node.next_functions if following is not None]
    return found


_TOOLS = tuple(
    os.path.join(os.path.dirname(torch.__file__), *path)
    for path in (("jit", "_trace.py"), ("ao", ""), ("nn", "utils", "parametriz"), ("export", ""))
)
OUTWARDS = 12
"""Frames that are looked at for a tool of torch."""


def called_by_a_tool(frame: FrameType | None) -> bool:
    """Whether torch itself calls a module, to trace, quantize or parametrize it: the program did not ask for
    what it returns."""
    for _ in range(OUTWARDS):
        if frame is None or not is_library(frame.f_code.co_filename):
            return False  # the program's own code, be it handed to a tool
        if frame.f_code.co_filename.startswith(_TOOLS):
            return True
        frame = frame.f_back
    return False


def living(*kinds: type) -> list[Any]:
    """All objects of some kinds in this process. There are a million objects and a few thousand types: these
    are asked first, since mostly none is of the kind."""
    every = gc.get_objects()
    types = dict(zip(map(id, map(type, every)), map(type, every), strict=True))  # some cannot be in a set
    wanted = {key for key, each in types.items() if issubclass(each, kinds)}
    return [o for o in every if id(type(o)) in wanted] if wanted else []
