"""What an optimizer, or a hook after its step, writes into a weight on purpose is no bad update; what
arithmetic makes there, or what comes out of its state, is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nanwatch

INFINITE = float("inf")
FORBIDDEN = torch.ones(6, 6, dtype=torch.bool).triu(1)
MASK = torch.zeros(6, 6).masked_fill(FORBIDDEN, -INFINITE)

Hook = Callable[[nn.Parameter, dict[str, torch.Tensor]], object]


class Chooses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scores = nn.Parameter(torch.randn(6, 6))
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(torch.softmax(self.scores, -1) @ x)
        return out


def train(folder: Path, hook: Hook, policy: str = "raise", decay: float = 0.01) -> list[nanwatch.Incident]:
    """With AdamW, whose decay multiplies what is in a weight."""
    with nanwatch.watch(dir=folder, explain=False, policy=policy) as session:
        model = Chooses()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=decay, foreach=False)

        @torch.no_grad()
        def after(*_: Any) -> None:
            hook(model.scores, optimizer.state[model.scores])

        optimizer.register_step_post_hook(after)
        for _ in range(8):
            optimizer.zero_grad()
            (model(torch.randn(6, 4)) - 1).square().mean().backward()
            optimizer.step()
    return list(session.incidents)


PUT: dict[str, Hook] = {
    "filled": lambda p, s: p.masked_fill_(FORBIDDEN, -INFINITE),
    "by index": lambda p, s: p.__setitem__(FORBIDDEN, -INFINITE),
    "chosen": lambda p, s: p.copy_(torch.where(FORBIDDEN, -INFINITE, p)),
    "a mask that is added": lambda p, s: p.add_(MASK),
}
KEPT: dict[str, Hook] = {
    "the smallest so far": lambda p, s: s.__setitem__("least", torch.full_like(p, INFINITE)),
    "one divided by a count": lambda p, s: s.__setitem__("rate", 1 / torch.zeros_like(p)),
}
MADE: dict[str, Hook] = {
    "an overflow": lambda p, s: p.mul_(1e30).mul_(1e30),
    "an overflow beside a mask": lambda p, s: p.masked_fill_(FORBIDDEN, -INFINITE).mul_(1e30).mul_(1e30),
    "a division by zero": lambda p, s: p.div_(torch.zeros(())),
    "an infinite rate": lambda p, s: p.add_(s["exp_avg"], alpha=INFINITE),
    "a rate that was infinite to begin with": lambda p, s: p.sub_(
        torch.full_like(p, INFINITE) * s["exp_avg"]
    ),
    "out of its state": lambda p, s: p.copy_(s.setdefault("least", torch.full_like(p, INFINITE))),
    "NaN": lambda p, s: p.masked_fill_(FORBIDDEN, -INFINITE).sub_(MASK),
    "a moment that overflows": lambda p, s: s["exp_avg_sq"].mul_(1e30).add_(1).mul_(1e30),
}


@pytest.mark.parametrize("policy", ["raise", "survive"])
@pytest.mark.parametrize("name", [*PUT, *KEPT])
def test_what_is_meant_is_left_alone(tmp_path: Path, name: str, policy: str, capfd: Any) -> None:
    assert train(tmp_path, {**PUT, **KEPT}[name], policy) == []
    assert capfd.readouterr().err == "", "nor is a snapshot refused"


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_there_is_told_of(tmp_path: Path, name: str) -> None:
    with pytest.raises(nanwatch.NonFiniteError) as caught:
        train(tmp_path, MADE[name])
    found = caught.value.incident
    assert (found.step, found.phase, found.seen_in) == (0, "optimizer", "weights")
