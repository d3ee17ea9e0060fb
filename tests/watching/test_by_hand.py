"""Weights that a program updates by hand, though an optimizer holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nanwatch

Watch = Callable[..., nanwatch.Session]
Update = Callable[[Tensor, list[Tensor]], None]
RATE = 0.1


def gradients_of(loss: Tensor, weights: list[Tensor]) -> list[Tensor]:
    loss.backward()
    found = [weight.grad.clone() for weight in weights if weight.grad is not None]
    for weight in weights:
        weight.grad = None
    return found


def in_place(loss: Tensor, weights: list[Tensor]) -> None:
    found = gradients_of(loss, weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, found, strict=True):
            weight -= RATE * gradient


def through_data(loss: Tensor, weights: list[Tensor]) -> None:
    for weight, gradient in zip(weights, gradients_of(loss, weights), strict=True):
        weight.data = weight.data - RATE * gradient


def all_at_once(loss: Tensor, weights: list[Tensor]) -> None:
    found = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        torch._foreach_add_(weights, found, alpha=-RATE)


UPDATES: list[Update] = [in_place, through_data, all_at_once]


def trained(steps: int, update: Update, bad: int, **also: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        loss = model(torch.randn(6, 4)).square().mean()
        update(loss.sub(loss.detach()).log() if step == bad else loss, list(model.parameters()))
    return model, optimizer


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("audit", [True, False])
def test_each_is_judged_at_once(watch: Watch, update: Update, audit: bool) -> None:
    seconds = {} if audit else {"audit_seconds": 0.0, "audit_share": 0.0}
    session = watch(explain=False, **seconds)
    with pytest.raises(nanwatch.NonFiniteError) as caught, session:
        trained(6, update, bad=3)
    found = caught.value.incident
    assert (found.step, found.phase, found.birth.op) == (3, "loss", "aten.log.default")


@pytest.mark.parametrize("update", UPDATES)
def test_a_bad_first_one_is_told_of_before_the_third_call(watch: Watch, update: Update) -> None:
    with pytest.raises(nanwatch.NonFiniteError) as caught, watch(explain=False):
        trained(6, update, bad=0)
    assert caught.value.incident.step < 2  # nobody knew until then where the first step ended
    assert caught.value.incident.birth.op == "aten.log.default"


@pytest.mark.parametrize("update", UPDATES)
def test_steps_are_the_optimizers_once_it_makes_one(watch: Watch, update: Update) -> None:
    session = watch(explain=False)
    with session:
        model, optimizer = trained(4, update, bad=-1)
        for step in range(3):
            loss = model(torch.randn(6, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert session.watcher.step == step + 1
    assert not session.incidents
