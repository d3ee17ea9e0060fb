"""A training that tries something out without gradients, and looks itself whether that was too much."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import assert_same, state_of
from torch import Tensor, nn

import nanwatch


class Rate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(self.linear(x))


def deviance(rate: Tensor) -> Tensor:
    return (rate - rate.log()).mean()


def line_search(looks: bool = True) -> list[Any]:
    """By hand: steps that are too large make Inf, and are halved."""
    model, x = Rate(), torch.randn(64, 3, generator=torch.Generator().manual_seed(0)) * 3
    lengths = []
    for _ in range(5):
        model.zero_grad()
        loss = deviance(model(x))
        loss.backward()
        before = [(p, p.detach().clone(), p.grad) for p in model.parameters()]
        length = 1000.0
        while length > 1e-8:
            with torch.no_grad():
                for p, start, gradient in before:
                    assert gradient is not None
                    p.copy_(start - length * gradient)
                tried = deviance(model(x))
            if (not looks or torch.isfinite(tried)) and tried < loss:
                break
            length /= 2
        lengths.append(length)
    return [*state_of(model), lengths]


def rates_tried(looks: bool = True) -> list[Any]:
    """With an optimizer: what went over is loaded back."""
    model = Rate()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(4):
        x = torch.randn(16, 3, generator=torch.Generator().manual_seed(step))
        loss = deviance(model(x))
        optimizer.zero_grad()
        loss.backward()
        state = {name: value.clone() for name, value in model.state_dict().items()}
        for rate in (1e4, 1e2, 1e-2):
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
            with torch.no_grad():
                tried = deviance(model(x))
            if (not looks or tried.isfinite()) and tried < loss:
                break
            model.load_state_dict(state)
    return state_of(model, optimizer)


@pytest.mark.parametrize("audit", [{}, {"audit_seconds": 0.0, "audit_share": 0.0}])
@pytest.mark.parametrize("play", [line_search, rates_tried])
def test_what_the_program_looks_at_itself_is_no_incident(
    play: Callable[[], list[Any]], audit: dict[str, Any], tmp_path: Path
) -> None:
    expected = play()
    with nanwatch.watch(dir=tmp_path, explain=False, **audit) as session:
        found = play()
    assert not session.incidents
    assert_same(found, expected)


@pytest.mark.parametrize("play", [line_search, rates_tried])
def test_what_nobody_looks_at_is_one(play: Callable[[bool], list[Any]], tmp_path: Path) -> None:
    with pytest.raises(nanwatch.NonFiniteError), nanwatch.watch(dir=tmp_path, explain=False) as session:
        play(False)
    assert [(i.seen_in, i.birth.op) for i in session.incidents] == [("output", "aten.exp.default")]


def test_the_last_trial_of_a_program_is_judged_too(tmp_path: Path) -> None:
    model = Rate()
    with nanwatch.watch(dir=tmp_path, explain=False, policy="observe") as session:
        deviance(model(torch.ones(2, 3))).backward()
        with torch.no_grad():
            model(torch.tensor([[1e4] * 3, [-1e4] * 3]))
    assert [i.seen_in for i in session.incidents] == ["output"]


def test_statistics_of_a_trial_are_put_back_at_once(tmp_path: Path) -> None:
    """And not later, over what the program has loaded since."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nanwatch.watch(dir=tmp_path, explain=False, policy="skip") as session:
        for step in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 3)).square().mean().backward()
            optimizer.step()
            if step == 1:
                before = state_of(model)
                with torch.no_grad():
                    tried = model(torch.full((5, 3), torch.nan))
                assert bool(torch.isnan(tried).any())
                assert_same(state_of(model), before)
    assert [i.action for i in session.incidents] == ["observed"]
    assert model[1].num_batches_tracked == 3
