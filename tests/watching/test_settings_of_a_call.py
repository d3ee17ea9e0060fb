"""What a model's code reads beside what it is given is on record with each call, and is there in a replay."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nanwatch
from nanwatch.watching.settings import MOST, Settings

Watch = Callable[..., nanwatch.Session]
FLOOR = 1.0
BASE = 1.0
CONFIG = {"scale": 1.0, "name": "first"}
OPTIONS = types.SimpleNamespace(width=torch.ones(()))


def narrowed(x: Tensor) -> Tensor:
    return x / OPTIONS.width


class Defaults:
    gain = 1.0


class Base(nn.Module):
    @property
    def gain(self) -> float:
        return Defaults.gain

    def scaled(self, x: Tensor) -> Tensor:
        return x / BASE


class Scaled(Base):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.temperature = nn.Linear(3, 3), 1.0
        self.norm = nn.Softshrink(0.0)
        self.options = types.SimpleNamespace(bound=1.0, head={"scale": 1.0})

    def forward(self, x: Tensor) -> Tensor:
        x = self.scaled(self.layer(x)) / self.options.bound / self.options.head["scale"] / self.temperature
        x = x / (1 - self.norm.lambd)
        return narrowed(x / CONFIG["scale"]) / FLOOR / self.gain


def set_floor(value: float) -> None:
    global FLOOR
    FLOOR = value


SET: dict[str, Callable[[Scaled, float], None]] = {
    "an attribute": lambda model, value: setattr(model, "temperature", value),
    "an attribute of what it holds": lambda model, value: setattr(model.options, "bound", value),
    "an attribute of a layer of torch": lambda model, value: setattr(model.norm, "lambd", 1 - value),
    "an entry further in": lambda model, value: model.options.head.update(scale=value),
    "an attribute of a class, read by a property": lambda model, value: setattr(Defaults, "gain", value),
    "a variable that a method of a base reads": lambda model, value: globals().update(BASE=value),
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
    assert 0 < len(Settings(model).now()) <= MOST


def test_of_layers_of_torch_only_what_is_no_size() -> None:
    assert not Settings(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert Settings(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.25))).now() == (0.25,)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.options, self.notes = types.SimpleNamespace(scale=1.0), {"calls": 0}

    def forward(self, x: Tensor) -> Tensor:
        return x * self.options.scale


def test_a_configuration_that_comes_to_hold_its_model_does_not_keep_it_alive() -> None:
    model = Counting()
    settings, alive = Settings(model), weakref.ref(model)
    assert settings.now() == (1.0, 0)
    model.options.model = model.notes["model"] = model
    del model
    gc.collect()
    assert alive() is None
    assert settings.now() == (None, None)


class Lazy:
    """As libraries have them: whatever is asked of it makes it."""

    made: list[str] = []

    @property
    def __class__(self) -> type:  # type: ignore[override]
        self.made.append("class")
        return dict

    def __getattr__(self, name: str) -> Any:
        self.made.append(name)
        raise AttributeError(name)


LAZY = Lazy()
TABLE = dict.fromkeys(range(100_000), 1.0)


class Reads(nn.Module):
    part = Lazy()

    def forward(self, x: Tensor, extra: Any = None) -> Tensor:
        return x if self.training else LAZY or self.part or TABLE


class Augmented(dict):  # type: ignore[type-arg]
    """Makes its items when somebody goes through them."""

    def values(self) -> Any:
        Lazy.made.append("values")
        return super().values()

    def __iter__(self) -> Any:
        Lazy.made.append("iter")
        return super().__iter__()


def test_no_code_of_the_program_runs_because_somebody_looks(watch: Watch) -> None:
    Lazy.made.clear()  # pytest has looked
    with watch():
        for given in (LAZY, Augmented(x=torch.ones(2)), [LAZY]):
            Reads()(torch.ones(2, requires_grad=True), given)
    assert Lazy.made == []


def test_what_libraries_keep_for_themselves_is_no_setting() -> None:
    model = Scaled()
    known = len(Settings(model).now())
    with ThreadPoolExecutor(1) as model.pool:
        assert len(Settings(model).now()) == known


def test_tables_are_no_settings() -> None:
    assert not any(place.trail == ("TABLE",) for place in Settings(Reads())._places)
