"""Of several optimizers any may have made the weights bad, not only the one that stepped last."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from torch import nn

import nanwatch
from nanwatch.watching.last_updates import MOST, MOST_CHANGES, LastUpdate, LastUpdates


class Normalised(torch.optim.Optimizer):
    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            parameter -= 0.1 * parameter.grad / parameter.grad.norm()


def train(steps: int, flat: int) -> list[torch.optim.Optimizer]:
    """In step `flat` of the loop the gradients are zero; two updates are made in each."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    first, second = Normalised([model.weight]), torch.optim.SGD([model.bias], lr=0.1)
    for step in range(steps):
        model.zero_grad()
        (model(torch.randn(3, 4)).square().mean() * (step != flat)).backward()
        first.step()
        second.step()
    return [first, second]


@pytest.mark.parametrize("steps", [3, 4])
def test_the_first_of_two_is_named(tmp_path: Path, steps: int) -> None:
    """At the end of the program, or in the next step."""
    with (
        pytest.raises(nanwatch.NonFiniteError) as caught,
        nanwatch.watch(dir=tmp_path, explain=False, audit_seconds=0, audit_share=0),
    ):
        kept = train(steps, flat=2)
        assert kept
    found = caught.value.incident
    assert (found.step, found.phase, found.birth.op) == (4, "optimizer", "aten.div.Tensor")


def noted(known: LastUpdates, step: int, optimizer: torch.optim.Optimizer) -> LastUpdate:
    gradients = sum(p.grad is not None for p in optimizer.param_groups[0]["params"])
    return known.note(optimizer, step, gradients)


def test_of_many_optimizers_the_latest_are_known_and_none_is_held() -> None:
    known = LastUpdates()
    made = [torch.optim.SGD([torch.zeros(1)]) for _ in range(MOST + 2)]
    for step, optimizer in enumerate([*made, made[2]]):
        noted(known, step, optimizer)
    steps = [update.step for update in known.latest_first]
    assert steps == [MOST + 2, *range(MOST + 1, 2, -1)]
    del made, optimizer
    gc.collect()
    assert all(update.optimizer() is None for update in known.latest_first)


def test_the_update_in_which_a_parameter_last_had_a_gradient() -> None:
    known, weights = LastUpdates(), [torch.zeros(1) for _ in range(3)]
    optimizer = torch.optim.SGD(weights)
    for step, with_gradient in enumerate([(0, 1, 2), (0, 1), (0, 2), (0, 2), (0,), (0,)]):
        for index, weight in enumerate(weights):
            weight.grad = torch.ones(1) if index in with_gradient else None
        last = noted(known, step, optimizer)
    assert [last.last_given_to(index) for index in range(3)] == [5, 1, 3]


def test_gradients_longer_ago_than_is_known() -> None:
    known, weights = LastUpdates(), [torch.zeros(1) for _ in range(3)]
    optimizer = torch.optim.SGD(weights)
    weights[0].grad = torch.ones(1)
    noted(known, 0, optimizer)
    for step in range(1, MOST_CHANGES + 1):
        weights[0].grad, weights[1 + step % 2].grad, weights[2 - step % 2].grad = None, torch.ones(1), None
        last = noted(known, step, optimizer)
    assert last.last_given_to(0) is None and last.last_given_to(1) == MOST_CHANGES
