"""Whose gradients they are: the parameters that are to be clipped, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from nanwatch.records import Numbers
from nanwatch.tensors import many_numbers

Parameters = nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]]
Optimizers = Optimizer | Sequence[Optimizer] | None
Named = list[tuple[str, Tensor]]


def named_parameters(parameters: Parameters, optimizer: Optimizers = None) -> Named:
    """Names come from the module, from pairs, or from an optimizer that was made with names; else they are
    places in the list."""
    if isinstance(parameters, nn.Module):
        return list(parameters.named_parameters())
    given: list[Any] = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    known = {id(p): name for o in optimizers_of(optimizer) for name, p in _named_in(o)}
    return [
        p if isinstance(p, tuple) else (known.get(id(p), f"parameters[{index}]"), p)
        for index, p in enumerate(given)
    ]


def optimizers_of(optimizer: Optimizers) -> list[Any]:
    if optimizer is None:
        return []
    return list(optimizer) if isinstance(optimizer, Sequence) else [optimizer]


def measured(named: Named) -> tuple[Numbers, ...]:
    """The numbers of the gradients that are not finite."""
    here = [(name, p.grad) for name, p in named if p.grad is not None]
    every = many_numbers([g for _, g in here], [name for name, _ in here])
    return tuple(n for n in every if not n.finite)


def zero_instead(named: Named) -> None:
    """0 in the place of every value that is not finite."""
    for _, p in named:
        if p.grad is not None:
            values = p.grad._values() if p.grad.is_sparse else p.grad
            values.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


def _named_in(optimizer: Any) -> Iterator[tuple[str, Tensor]]:
    for group in optimizer.param_groups:
        yield from zip(group.get("param_names", ()), group["params"], strict=False)
