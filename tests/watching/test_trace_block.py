"""`with nanwatch.trace() as found:` which op made the first NaN or Inf in this block."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import bad_loss, batch, good_loss, network
from test_leaves_nothing import nothing_left, taps
from torch import nn

import nanwatch

Watch = Callable[..., nanwatch.Session]
__all__ = ["nothing_left"]
FINITE = "nanwatch: every op in the traced block gave finite values, or infinities that were asked for.\n"


def test_a_birth_in_the_forward(capfd: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.log(self.inner(x) - 100)

    with nanwatch.trace() as found:
        Model()(torch.ones(3, 2)).sum()
    assert found.birth is not None and found.incident is not None
    assert (found.birth.op, found.birth.module) == ("aten.log.default", "")
    assert found.birth.code == "return torch.log(self.inner(x) - 100)"
    assert found.birth.file == __file__
    assert (found.incident.kind, found.incident.phase, found.incident.action) == (
        "nan",
        "forward",
        "observed",
    )
    assert (found.birth.inputs[0].nan, found.birth.outputs[0].nan) == (0, 6)
    assert "aten.log.default" in capfd.readouterr().err


def test_a_birth_in_a_submodule() -> None:
    model = nn.Sequential(nn.Identity(), nn.Sequential(nn.Linear(2, 2), nn.LogSoftmax(0)))
    nn.init.ones_(model[1][0].weight)
    with nanwatch.trace(quiet=True) as found:
        model(torch.full((1, 2), 3e38))
    assert found.birth is not None
    assert (found.birth.op, found.birth.module) == ("aten.addmm.default", "1.0")


def test_a_birth_in_the_backward() -> None:
    x = torch.zeros(3, requires_grad=True)
    with nanwatch.trace(quiet=True) as found:
        loss = x.square().sum().sqrt()
        loss.backward()
    assert found.birth is not None and found.incident is not None
    assert found.incident.phase == "backward"
    assert found.birth.node == "SqrtBackward0"
    assert found.birth.code == "loss = x.square().sum().sqrt()"
    assert x.grad is not None and bool(x.grad.isnan().all())


def test_all_finite(capfd: Any) -> None:
    with nanwatch.trace() as found:
        good_loss(network()(batch(0))).backward()
    assert found.incident is None and found.birth is None
    assert capfd.readouterr().err == FINITE


def test_infinities_that_were_asked_for(capfd: Any) -> None:
    with nanwatch.trace() as found:
        scores = torch.randn(4, 4)
        mask = torch.full((4, 4), float("-inf")).triu(1)
        weights = (scores + mask).softmax(-1)
        best = torch.tensor(float("inf"))
        best = torch.minimum(best, weights.sum())
    assert found.incident is None
    assert capfd.readouterr().err == FINITE


def test_a_value_born_and_hidden() -> None:
    with nanwatch.trace(quiet=True) as found:
        x = torch.tensor([-1.0, 1.0])
        y = torch.where(x > 0, x.sqrt(), torch.zeros(2))
    assert y.tolist() == [0.0, 1.0]
    assert found.birth is not None and found.birth.op == "aten.sqrt.default"


def test_hidden_by_what_the_forward_did_with_it() -> None:
    x = torch.tensor([1000.0, 1.0], requires_grad=True)
    with nanwatch.trace() as found:
        larger = torch.maximum(x.exp(), torch.zeros(2))
        (larger.clamp(max=3.0) / 2).sum().backward()  # its derivative asks again which one was larger
    assert found.incident is not None
    assert [h.hidden_by.op for h in found.incident.hidden] == ["aten.clamp.default"]


def test_what_is_only_asked_for_its_shape_is_not_hidden() -> None:
    with nanwatch.trace(quiet=True) as found:
        y = torch.tensor([-1.0, 1.0]).sqrt()
        torch.ones_like(y).sum()
        y.sum()
    assert found.incident is not None and not found.incident.hidden


def test_an_exception_inside_is_the_programs_own(capfd: Any) -> None:
    before = taps()
    found = nanwatch.trace()
    with pytest.raises(ZeroDivisionError), found:
        torch.tensor(-1.0).sqrt()
        raise ZeroDivisionError
    assert taps() == before
    assert found.birth is not None and found.birth.op == "aten.sqrt.default"


def test_traces_one_inside_the_other() -> None:
    before = taps()
    with nanwatch.trace(quiet=True) as outer:
        torch.tensor(1.0).sqrt()
        with nanwatch.trace(quiet=True) as inner:
            kept = torch.tensor(-1.0).sqrt()
    assert taps() == before
    assert bool(kept.isnan())
    assert inner.birth is not None and inner.birth.op == "aten.sqrt.default"
    assert outer.birth is not None and outer.birth.op == "aten.sqrt.default"


def test_inside_a_watched_program(watch: Watch) -> None:
    """The trace sees its block, the session goes on watching."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = watch(model, optimizer, policy="skip")
    for step in range(4):
        optimizer.zero_grad()
        with nanwatch.trace(quiet=True) as found:
            out = model(batch(step))
            loss = bad_loss(out) if step == 2 else good_loss(out)
            loss.backward()
        assert (found.birth is None) == (step != 2)
        optimizer.step()
    session.close()
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    assert [(i.step, i.action, i.birth.op) for i in session.incidents] == [
        (2, "skipped", "aten.sqrt.default")
    ]


def test_the_trace_changes_no_number() -> None:
    def play() -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.LayerNorm(8), nn.Linear(8, 1))
        good_loss(model(batch(0))).backward()
        return torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])

    plain = play()
    with nanwatch.trace(quiet=True):
        traced = play()
    assert torch.equal(plain, traced)


def test_a_module_path_is_not_needed_for_a_file(tmp_path: Path) -> None:
    """Code without a file (exec, a notebook cell) has its birth, with the name Python gives it."""
    with nanwatch.trace(quiet=True) as found:
        exec(compile("kept = torch.tensor(-1.0).sqrt()", "<string>", "exec"), {"torch": torch})
    assert found.birth is not None
    assert (found.birth.op, found.birth.file, found.birth.line) == ("aten.sqrt.default", "<string>", 1)
