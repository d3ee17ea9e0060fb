"""What a model's code reads beside what it is given is on record with each call, and is there in a replay."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nanwatch
from nanwatch.watching.settings import MOST, Settings

Watch = Callable[..., nanwatch.Session]
FLOOR = 1.0
CONFIG = {"scale": 1.0, "name": "first"}
OPTIONS = types.SimpleNamespace(width=torch.ones(()))


def narrowed(x: Tensor) -> Tensor:
    return x / OPTIONS.width


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.temperature = nn.Linear(3, 3), 1.0
        self.options = types.SimpleNamespace(bound=1.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x) / self.options.bound / self.temperature
        return narrowed(x / CONFIG["scale"]) / FLOOR


def set_floor(value: float) -> None:
    global FLOOR
    FLOOR = value


SET: dict[str, Callable[[Scaled, float], None]] = {
    "an attribute": lambda model, value: setattr(model, "temperature", value),
    "an attribute of what it holds": lambda model, value: setattr(model.options, "bound", value),
    "an entry of a configuration": lambda model, value: CONFIG.update(scale=value),
    "a variable of its file": lambda model, value: set_floor(value),
    "what a function of its file reads": lambda model, value: setattr(OPTIONS, "width", torch.tensor(value)),
}


@pytest.mark.parametrize("what", SET)
def test_a_replay_has_those_of_the_call(tmp_path: Path, what: str) -> None:
    torch.manual_seed(0)
    model = Scaled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options: dict[str, Any] = {"audit_seconds": 0.0, "audit_share": 0.0, "dir": tmp_path, "explain": False}
    with pytest.raises(nanwatch.NonFiniteError) as caught, nanwatch.watch(model, optimizer, **options):
        for step in range(4):
            SET[what](model, 0.0 if step == 3 else 1.0)
            try:
                out = model(torch.randn(2, 3))
            finally:
                SET[what](model, 1.0)
            optimizer.zero_grad()
            out.square().mean().backward()
            optimizer.step()
    incident = caught.value.incident
    assert (incident.step, incident.phase, incident.located_by) == (3, "forward", "replay")
    assert (incident.birth.op, incident.birth.module) == ("aten.div.Tensor", "")
    assert (model.temperature, CONFIG["scale"], FLOOR, model.options.bound) == (1.0, 1.0, 1.0, 1.0)


def test_it_is_put_back_whatever_happens_in_between() -> None:
    model = Scaled()
    settings = Settings(model)
    then = settings.now()
    model.temperature = 5.0
    with pytest.raises(KeyError), settings.as_they_were(then):
        assert model.temperature == 1.0
        raise KeyError
    assert model.temperature == 5.0


def test_it_holds_no_model() -> None:
    model = Scaled()
    settings = Settings(model)
    gone, weights = weakref.ref(model), weakref.ref(model.layer.weight)
    del model
    gc.collect()
    assert gone() is None and weights() is None
    with settings.as_they_were(settings.now()):
        pass


def test_it_reads_no_more_than_a_few() -> None:
    model = nn.Sequential(*(Scaled() for _ in range(500)))
    assert sum(map(len, Settings(model).now())) <= MOST


def test_layers_of_torch_have_none() -> None:
    assert not Settings(nn.Sequential(nn.Linear(2, 2), nn.Dropout()))
