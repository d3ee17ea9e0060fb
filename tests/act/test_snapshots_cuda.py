"""On CUDA: copies through pinned memory, the generators of the device, fused optimizers, the scaler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from snapshot_trainings import assert_same, seed
from torch import nn

from nanwatch import LastGood

pytestmark = pytest.mark.gpu


@pytest.fixture(params=["memory", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "last-good" if request.param == "disk" else None


class OnCuda:
    """Mixed precision with dropout: every step draws from the device's generator."""

    def __init__(self, **options: Any) -> None:
        seed()
        layers = [nn.Linear(64, 256), nn.BatchNorm1d(256), nn.Dropout(0.3), nn.Linear(256, 8)]
        self.model = nn.Sequential(*layers).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, **options)
        self.scaler = torch.amp.GradScaler("cuda", init_scale=256.0, growth_interval=3)
        self.objects = [self.model, self.optimizer, self.scaler]

    def step(self) -> None:
        self.optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = self.model(torch.randn(32, 64, device="cuda")).float().square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def bits(self) -> Any:
        state = [thing.state_dict() for thing in self.objects]
        return on_host([*state, torch.get_rng_state(), torch.cuda.get_rng_state_all()])

    def spoil(self) -> None:
        for tensor in self.model.state_dict().values():
            tensor.fill_(float("nan") if tensor.is_floating_point() else 0)
        self.optimizer.state.clear()
        self.scaler.update(1.0)
        torch.rand(5, device="cuda")


def on_host(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.cpu().clone()
    if isinstance(value, dict):
        return {key: on_host(item) for key, item in value.items()}
    return [on_host(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {"capturable": True}], ids=str)
def test_a_run_that_went_astray_ends_like_one_that_did_not(
    options: dict[str, Any], place: Path | None
) -> None:
    straight = OnCuda(**options)
    for _ in range(12):
        straight.step()
    expected = straight.bits()

    training = OnCuda(**options)
    with LastGood(*training.objects, every=4, dir=place) as last_good:
        step, good = 0, None
        while step < 12:
            training.step()
            last_good.step(step)
            good = training.bits() if step == 8 else good
            if step == 10 and good is not None:
                training.spoil()
                step = last_good.rollback()
                assert step == 8
                assert_same(good, training.bits())
                devices = [p.device for p in training.optimizer.state[training.model[0].weight].values()]
                assert torch.device("cuda", 0) in devices
                good = None
            step += 1
    assert_same(expected, training.bits())


def test_a_change_right_after_step_is_not_in_the_snapshot(place: Path | None) -> None:
    """The copy is complete when `step` returns."""
    weight = nn.Parameter(torch.ones(4_000_000, device="cuda"))
    model = nn.ParameterList([weight])
    with LastGood(model, every=1, dir=place) as last_good:
        for step in range(3):
            weight.data.fill_(step + 1.0)
            last_good.step(step)
            weight.data.fill_(-1.0)
        assert last_good.rollback() == 2
    assert (weight == 3.0).all()


def test_the_captured_graph_goes_on(place: Path | None) -> None:
    """Going back writes into the memory that a CUDA graph was captured on."""
    model = nn.Linear(8, 8).cuda()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    x = torch.randn(4, 8, device="cuda")

    def update() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            update()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        update()
    with LastGood(model, optimizer, every=1, dir=place) as last_good:
        last_good.step(0)
        graph.replay()
        after = on_host(model.state_dict())
        model.weight.data.fill_(float("nan"))
        assert last_good.rollback() == 0
        graph.replay()
    assert_same(after, on_host(model.state_dict()))
