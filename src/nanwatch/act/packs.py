"""Many small tensors as a few long ones: what is written and read tensor by tensor costs a moment each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

SMALL_BYTES = 2**20
LONGEST_BYTES = 2**26
"""Of a pack: a copy of what is in it is made."""

Contents = dict[str, list[Any]]
"""Name of a pack -> the name and shape of each tensor in it, in order."""


def packed(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], Contents]:
    """The same values under fewer names."""
    whole = dict(tensors)
    contents: Contents = {}
    for number, names in enumerate(_to_pack(tensors)):
        pack = f"pack {number}"
        while pack in tensors:
            pack += "'"
        parts = [whole.pop(name) for name in names]
        whole[pack] = torch.cat([part.reshape(-1) for part in parts])
        contents[pack] = [[name, list(part.shape)] for name, part in zip(names, parts, strict=True)]
    return whole, contents


def unpacked(tensors: dict[str, Tensor], contents: Contents) -> dict[str, Tensor]:
    found = dict(tensors)
    for pack, parts in contents.items():
        rest = found.pop(pack)
        for name, shape in parts:
            count = torch.Size(shape).numel()
            found[name], rest = rest[:count].reshape(shape), rest[count:]
    return found


def _to_pack(tensors: dict[str, Tensor]) -> Iterator[list[str]]:
    """The names of those that go into one: small, of one dtype, and in the usual order in memory."""
    waiting: dict[torch.dtype, list[str]] = {}
    sizes: dict[torch.dtype, int] = {}
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if size > SMALL_BYTES or not tensor.is_contiguous():
            continue
        if tensor.dtype in waiting and sizes[tensor.dtype] + size > LONGEST_BYTES:
            yield waiting.pop(tensor.dtype)
            sizes[tensor.dtype] = 0
        waiting.setdefault(tensor.dtype, []).append(name)
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + size
    yield from waiting.values()
