"""Layers that learn nothing, and a loss scale that falls, are facts of the steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nanwatch
from nanwatch.watching.layers import MOST_NAMED, facts_of

Watch = Callable[..., nanwatch.Session]
AUDITED = {"mode": "host", "audit_seconds": 60}


def facts(tmp_path: Path) -> list[dict[str, Any]]:
    lines = (tmp_path / "run" / "steps-rank0.jsonl").read_text().splitlines()
    return [json.loads(line).get("facts", {}) for line in lines]


def train(model: nn.Module, steps: int = 4) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        loss = (model(torch.randn(6, 4)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def dead() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    nn.init.constant_(model[0].bias, -100.0)
    return model


def deep() -> nn.Module:
    layers = [layer for _ in range(16) for layer in (nn.Linear(4, 4), nn.Sigmoid())]
    return nn.Sequential(*layers, nn.Linear(4, 1))


def healthy() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 1))


def test_a_dead_layer(watch: Watch, tmp_path: Path) -> None:
    torch.manual_seed(0)
    with watch(**AUDITED):
        train(dead())
    for step in facts(tmp_path):
        assert step["dead"] == ["0.weight", "2.weight"]
        assert "vanishing" not in step


def test_gradients_that_vanish(watch: Watch, tmp_path: Path) -> None:
    torch.manual_seed(0)
    with watch(**AUDITED):
        train(deep())
    for step in facts(tmp_path):
        assert step["vanishing"][:2] == ["0.weight", "2.weight"]
        assert len(step["vanishing"]) == MOST_NAMED
        assert "dead" not in step


def test_a_healthy_program_has_none_of_it(watch: Watch, tmp_path: Path) -> None:
    torch.manual_seed(0)
    with watch(**AUDITED):
        train(healthy())
    steps = facts(tmp_path)
    assert len(steps) == 4
    for step in steps:
        assert "layers" in step
        assert not {"dead", "vanishing", "scale_fell"} & set(step)


def test_a_bias_that_needs_no_gradient_is_not_dead() -> None:
    """Of a critic's last layer, it adds the same to both of what is compared."""
    torch.manual_seed(0)
    critic = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.01)
    (critic(torch.randn(6, 4)).mean() - critic(torch.randn(6, 4)).mean()).backward()
    found = facts_of(optimizer, [critic])
    assert found["layers"]["bias"][1] == 0
    assert "dead" not in found


def test_the_norms_are_those_of_weights_and_gradients() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model(torch.randn(6, 4)).square().mean().backward()
    found = facts_of(optimizer, [model])["layers"]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert found[name] == pytest.approx(
            [parameter.detach().norm().item(), parameter.grad.norm().item()], rel=1e-3
        )


@pytest.mark.parametrize("gradients", ["none", "all zero", "sparse", "no values"])
def test_gradients_that_say_nothing(gradients: str) -> None:
    table = nn.Embedding(5, 3, sparse=gradients == "sparse")
    empty = nn.Embedding(5, 0)
    model = empty if gradients == "no values" else table
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if gradients == "all zero":
        (table(torch.tensor([1])) * 0).sum().backward()
    elif gradients == "sparse":
        table(torch.tensor([1])).sum().backward()
    elif gradients == "no values":
        empty(torch.tensor([1])).sum().backward()
    assert not {"dead", "vanishing"} & set(facts_of(optimizer, [model]))


def scaled(scale: float, steps: int = 6, grows_after: int = 2000) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=grows_after)
    for _ in range(steps):
        loss = (model(torch.ones(6, 4)) * 3).square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_a_loss_scale_that_falls(watch: Watch, tmp_path: Path) -> None:
    """From a scale at which every gradient overflows, halved at each skip until it fits."""
    with watch(**AUDITED) as session:
        scaled(2.0**127, steps=8)
    assert session.incidents == []
    lines = (tmp_path / "run" / "steps-rank0.jsonl").read_text().splitlines()
    skips = ["scaler-skip" in json.loads(line)["events"] for line in lines]
    count = skips.index(False)
    assert count >= 3 and not any(skips[count:])
    fell = [step.get("scale_fell") for step in facts(tmp_path)]
    assert fell == [None, None, *range(3, count + 1), *[None] * (len(skips) - count)]


def test_a_loss_scale_that_fits(watch: Watch, tmp_path: Path) -> None:
    with watch(**AUDITED):
        scaled(2.0**10)
    assert all("scale_fell" not in step for step in facts(tmp_path))


def test_a_loss_scale_that_goes_up_and_down(watch: Watch, tmp_path: Path) -> None:
    """Skipped again and again, and never three times in a row."""
    with watch(**AUDITED):
        scaled(2.0**120, steps=14, grows_after=1)
    lines = (tmp_path / "run" / "steps-rank0.jsonl").read_text().splitlines()
    assert sum("scaler-skip" in json.loads(line)["events"] for line in lines) >= 3
    assert all("scale_fell" not in step for step in facts(tmp_path))
