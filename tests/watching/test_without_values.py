"""Trainings whose values cannot or must not be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import nanwatch

Watch = Callable[..., nanwatch.Session]


def train(bad: bool = False) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        out = model(torch.ones(2, 4)) * (torch.nan if bad and step == 2 else 1.0)
        out.square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def test_on_the_meta_device_nothing_is_wrong(watch: Watch) -> None:
    with watch() as session:
        with torch.device("meta"):
            train()
        assert not session.watcher.shield.broken
        with pytest.raises(nanwatch.NonFiniteError):
            train(bad=True)


class MustNotWait(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert function is not torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


def test_a_mode_of_the_program_sees_nothing_of_what_we_read(watch: Watch) -> None:
    with watch() as session:
        with MustNotWait():
            train()
        assert not session.watcher.shield.broken
