"""A dispatch mode of the program's hears the program's ops and none of ours; it may refuse some."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import BAD_STEP, network
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

import nanwatch
from nanwatch.watching.beside_modes import beside_modes

Watch = Callable[..., nanwatch.Session]


class Hears(TorchDispatchMode):
    def __init__(self, refused: str = "nothing") -> None:
        super().__init__()
        self.heard: list[str] = []
        self.refused = refused

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = str(function)
        if self.refused in name:
            raise NotImplementedError(name)
        if not name.startswith("profiler."):  # of optimizers
            self.heard.append(name)
        return function(*args, **(kwargs or {}))


def train(mode: AbstractContextManager[Any], bad: bool = False) -> nn.Module:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=False)
    with mode:
        for step in range(BAD_STEP + 3):
            noise = torch.randn(5, 4)
            out = model(noise + 1)
            noise.mul_(2)
            if bad and step == BAD_STEP:
                out = torch.log(out * 0 - 1)
            optimizer.zero_grad()
            (out - 1).square().mean().backward()
            nn.utils.clip_grad_value_(model.parameters(), 1.0, foreach=False)
            optimizer.step()
        assert _get_current_dispatch_mode_stack() == ([mode] if isinstance(mode, Hears) else [])
    return model


@pytest.mark.parametrize("audit", [0.0, 5.0])
def test_it_hears_the_ops_of_the_program_alone(watch: Watch, audit: float) -> None:
    train(alone := Hears())
    with watch(audit_seconds=audit, audit_share=0.0):
        train(watched := Hears())
    assert watched.heard == alone.heard


@pytest.mark.parametrize("refused", ["_foreach", "_to_copy", "stack"])
def test_it_may_refuse_what_only_we_would_ask_for(watch: Watch, refused: str, capfd: Any) -> None:
    with watch() as session:
        train(Hears(refused))
    assert (session.incidents, capfd.readouterr().err) == ([], "")


@pytest.mark.parametrize("audit", [0.0, 5.0])
def test_a_replay_is_not_heard(watch: Watch, audit: float) -> None:
    with watch(policy="skip", audit_seconds=audit, audit_share=0.0) as session:
        train(mode := Hears(), bad=True)
    (found,) = session.incidents
    assert found.birth is not None and found.birth.line is not None
    assert (found.step, found.birth.op, found.birth.file) == (BAD_STEP, "aten.log.default", __file__)
    assert mode.heard.count("aten.log.default") == 1


def test_the_same_line_is_met_in_a_replay(tmp_path: Path) -> None:
    """With the mode's own frame or without."""
    found = []
    for mode in (Hears(), nullcontext()):
        with nanwatch.watch(dir=tmp_path / type(mode).__name__, policy="skip") as session:
            train(mode, bad=True)
        found += session.incidents
    assert {(i.cause.id, i.cause.certainty) for i in found if i.cause is not None} == {
        ("invalid-domain", "proved")
    }


def test_modes_come_back_in_their_order_whatever_happens() -> None:
    def fails() -> None:
        assert _get_current_dispatch_mode_stack() == []
        raise KeyError

    with Hears() as outer, Hears() as inner:
        with pytest.raises(KeyError):
            beside_modes(fails)
        assert _get_current_dispatch_mode_stack() == [outer, inner]


def test_a_mode_in_another_thread(watch: Watch) -> None:
    model = network()
    mode = Hears()

    def infer() -> None:
        with mode, torch.no_grad():
            model(torch.randn(5, 4))

    alone = Hears()
    with alone, torch.no_grad():
        model(torch.randn(5, 4))
    with watch():
        train(Hears())
        worker = threading.Thread(target=infer)
        worker.start()
        worker.join()
    assert mode.heard == alone.heard
