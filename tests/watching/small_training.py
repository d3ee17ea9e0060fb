"""Small trainings with a known bad step, as plain functions: to be run watched and not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

BAD_STEP = 3
STEPS = 6


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 1))


def batch(step: int) -> torch.Tensor:
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(step))


def bad_loss(out: torch.Tensor) -> torch.Tensor:
    return torch.sqrt(out.square().mean() * 0 - 1)


def good_loss(out: torch.Tensor) -> torch.Tensor:
    return (out - 1).square().mean()


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    bad: Iterable[int] = (),
    left_out: Iterable[int] = (),
    steps: int = STEPS,
    after: Callable[[int], None] = lambda step: None,
) -> None:
    """One batch a step; at the steps in `bad` the loss is NaN; those in `left_out` are not made at all."""
    for step in range(steps):
        if step not in left_out:
            optimizer.zero_grad()
            out = model(batch(step))
            loss = bad_loss(out) if step in bad else good_loss(out)
            loss.backward()
            optimizer.step()
        after(step)


def state_of(*things: Any) -> list[Any]:
    """A copy of everything that training changes."""
    return [copy.deepcopy(thing.state_dict()) for thing in things]


def assert_same(found: Any, expected: Any, where: str = "") -> None:
    """Bit for bit, NaN and the sign of zero included."""
    assert type(found) is type(expected), where
    if isinstance(found, torch.Tensor):
        assert found.dtype == expected.dtype and found.shape == expected.shape, where
        same = found.detach().contiguous().cpu().view(-1), expected.detach().contiguous().cpu().view(-1)
        if found.numel():
            assert torch.equal(*(t.view(torch.uint8) for t in same)), f"{where}: {found} is not {expected}"
    elif isinstance(found, dict):
        assert list(found) == list(expected), where
        for key in found:
            assert_same(found[key], expected[key], f"{where}.{key}")
    elif isinstance(found, (list, tuple)):
        assert len(found) == len(expected), where
        for index, pair in enumerate(zip(found, expected, strict=True)):
            assert_same(*pair, f"{where}[{index}]")
    else:
        assert found == expected, where
