"""Good micro-batches are made again with all of their loss, also with what a model keeps to itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "watching"))

from small_training import assert_same, state_of

import nanwatch

BAD = (3, 1)
"""The step and the micro-batch."""


class Router(nn.Module):
    """Keeps one loss in an attribute, one in a list, and one is kept by a hook on its gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.head = nn.Linear(5, 4), nn.Linear(4, 2)
        self.listed: list[torch.Tensor] = []
        self.hooked: dict[str, torch.Tensor] = {}
        self.gate.register_forward_hook(self._keep)

    def _keep(self, module: nn.Module, given: Any, made: torch.Tensor) -> None:
        self.hooked["gate"] = made.square().mean()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = self.gate(x).softmax(-1)
        self.balance = shares.mean(0).square().sum()
        self.listed[:] = [shares.log().mean()]
        return self.head(shares)


def loss_of(model: Router, x: torch.Tensor, y: torch.Tensor, kept: str) -> torch.Tensor:
    out = model(x)
    more = {"attribute": model.balance, "list": model.listed[0], "hook": model.hooked["gate"]}[kept]
    return (nn.functional.cross_entropy(out, y) + 5.0 * more) / 4


def train(kept: str, without: tuple[int, int] | None) -> list[Any]:
    torch.manual_seed(0)
    model = Router()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for step in range(6):
        optimizer.zero_grad()
        for part in range(4):
            numbers = torch.Generator().manual_seed(10 * step + part)
            x, y = torch.randn(6, 5, generator=numbers), torch.randint(0, 2, (6,), generator=numbers)
            if (step, part) == BAD:
                x[2, 2] = float("nan")
            if (step, part) != without:
                loss_of(model, x, y, kept).backward()
        optimizer.step()
    return state_of(model, optimizer)


@pytest.mark.parametrize("kept", ["attribute", "list", "hook"])
def test_a_skipped_micro_batch_takes_no_loss_of_others_along(kept: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"audit_seconds": 0.0, "audit_share": 0.0, "explain": False}
    with nanwatch.watch(policy="skip", dir=tmp_path, **options) as session:
        found = train(kept, None)
    assert [(i.step, i.action) for i in session.incidents] == [(BAD[0], "skipped")]
    assert_same(found, train(kept, BAD))


class Recycling(nn.Module):
    """What it kept of the micro-batch before is part of the next one's loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 1)
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.layer(x)
        self.last = made.square().mean()
        return made


def test_micro_batches_that_hang_on_each_other_are_left_out_together(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Recycling()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    session = nanwatch.watch(policy="skip", dir=tmp_path, explain=False)
    for step in range(3):
        optimizer.zero_grad()
        before = state_of(model)
        kept = None
        for part in range(3):
            x = torch.randn(6, 5)
            if (step, part) == (1, 2):
                x[0, 0] = float("nan")
            loss = model(x).abs().mean() + (0.0 if kept is None else kept)
            kept = model.last
            loss.backward(retain_graph=True)
        optimizer.step()
        if step == 1:
            assert_same(state_of(model), before)
    session.close()
    assert [i.action for i in session.incidents] == ["skipped"]
