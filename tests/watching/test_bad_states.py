"""What an optimizer keeps and is not finite is told of in the update that used it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import nanwatch


def overflow(state: dict[str, torch.Tensor]) -> None:
    state["momentum_buffer"].mul_(1e38).mul_(1e10)


def narrow(state: dict[str, torch.Tensor]) -> None:
    state["momentum_buffer"] = (state["momentum_buffer"] * 1e9).half().float()


@pytest.mark.parametrize(("spoil", "op"), [(overflow, "aten.mul_.Tensor"), (narrow, "aten._to_copy.default")])
def test_the_op_of_the_program_that_spoilt_it(
    tmp_path: Path, spoil: Callable[[dict[str, torch.Tensor]], None], op: str
) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    with pytest.raises(nanwatch.NonFiniteError) as caught, nanwatch.watch(dir=tmp_path, explain=False):
        for step in range(5):
            optimizer.zero_grad()
            model(torch.randn(4, 4)).square().mean().backward()
            if step == 3:
                spoil(optimizer.state[model.weight])
            optimizer.step()
    found = caught.value.incident
    assert (found.step, found.phase, found.birth.op, found.birth.samples) == (3, "optimizer", op, ())
