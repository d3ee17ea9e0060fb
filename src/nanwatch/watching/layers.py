"""Which layers learn nothing: for the timeline, in the steps that are audited."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

VANISHING = 1e-7
"""A gradient this many times smaller, per value, than that of the layer that learns most."""
MOST_NAMED = 8
MOST_LAYERS = 64


def facts_of(optimizer: Optimizer, models: Iterable[nn.Module]) -> dict[str, Any]:
    """`layers`: the norms of each parameter and of its gradient; `dead`: those whose gradient is zero all
    over; `vanishing`: those whose gradient is next to nothing beside the largest."""
    names = {id(p): name.replace("_orig_mod.", "") for m in models for name, p in m.named_parameters()}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    named = [(names[id(p)], p, p.grad) for p in held if id(p) in names and _plain(p) and _plain(p.grad)]
    if not named:
        return {}
    with torch.no_grad():
        weights = _norms([p for _, p, _ in named])
        gradients = _norms([g for _, _, g in named])
    found: dict[str, Any] = {
        "layers": {
            name: [_short(w), _short(g)]
            for (name, _, _), w, g in zip(named[:MOST_LAYERS], weights, gradients, strict=False)
        }
    }
    sizes = {
        name: g / gradient.numel() ** 0.5 for (name, _, gradient), g in zip(named, gradients, strict=True)
    }
    largest = max(sizes.values())
    matrices = {name for name, p, _ in named if p.dim() > 1}  # a bias before a softmax has none by right
    dead = [name for name, size in sizes.items() if name in matrices and size == 0]
    vanishing = [n for n, size in sizes.items() if n in matrices and 0 < size < VANISHING * largest]
    for key, which in (("dead", dead), ("vanishing", vanishing)):
        if which and largest > 0:
            found[key] = which[:MOST_NAMED]
    return found


def _plain(tensor: Any) -> bool:
    return (
        type(tensor) in (torch.Tensor, nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.is_floating_point()
        and tensor.numel() > 0
        and tensor.device.type != "meta"
    )


def _norms(tensors: list[torch.Tensor]) -> list[float]:
    norms = torch._foreach_norm([t.detach() for t in tensors])
    device = norms[0].device
    numbers: list[float] = torch.stack([n.double().to(device) for n in norms]).tolist()
    return numbers


def _short(value: float) -> float:
    return float(f"{value:.4g}")
