"""Weights that a module holds without having registered them: in plain attributes, in lists, in objects.

Experts that stay on the CPU are kept so, because `model.to(device)` would move what is registered. Only
memory that was filled elsewhere (a file, shared memory, an array) counts: what the model itself keeps from
call to call, such as a cache, is no weight.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nanwatch.watching.stack import Stack, is_library
from nanwatch.watching.storages import Storages
from nanwatch.watching.tape import PLAIN

DEEPEST = 5
MOST_LOOKED_AT = 5000
"""Values looked at in one model."""

_OWN = frozenset(vars(nn.Module()))
"""What torch itself keeps in a module."""


@dataclass(frozen=True)
class Attached:
    name: str
    """From the root: "blocks.0.experts.weights.w1"."""
    tensor: torch.Tensor
    path: str
    """Of the module that holds it."""
    module: nn.Module


def attached_to(root: nn.Module, arrivals: Storages[Stack] | None) -> list[Attached]:
    """Each tensor once."""
    if not arrivals:
        return []
    found: dict[int, Attached] = {}
    seen: set[int] = set()
    for full, module in root.named_modules():
        path = full.replace("_orig_mod.", "")
        for attribute in [name for name in vars(module) if name not in _OWN]:
            value, name = vars(module)[attribute], f"{path}.{attribute}" if path else attribute
            for shown, tensor in _tensors(value, name, seen, DEEPEST):
                if arrivals.get(tensor) is not None:
                    found.setdefault(id(tensor), Attached(shown, tensor, path, module))
    return list(found.values())


def _tensors(value: Any, name: str, seen: set[int], depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    if depth == 0 or isinstance(value, (PLAIN, nn.Module)) or id(value) in seen or len(seen) > MOST_LOOKED_AT:
        return
    seen.add(id(value))
    for part, inner in _parts(value):
        yield from _tensors(inner, f"{name}.{part}", seen, depth - 1)


def _parts(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    attributes = getattr(value, "__dict__", None)
    if type(attributes) is not dict or _of_library(type(value)):
        return []
    return list(attributes.items())


def _of_library(kind: type) -> bool:
    """Objects of a library hold what is the library's own business: a pool its threads, a file its buffer."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is None or is_library(file)
