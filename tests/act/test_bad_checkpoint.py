"""A bad checkpoint is an incident of its own: named, and judged by the policy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import nanwatch
from nanwatch.act import checkpoint_gate

AUDITS = {"audit": {}, "no audit": {"audit_seconds": 0.0, "audit_share": 0.0}}


def model_of_counts() -> nn.BatchNorm1d:
    """Its statistics do not fit into float16."""
    norm = nn.BatchNorm1d(3)
    norm(torch.arange(12.0).view(4, 3) * 1e5)
    return norm


def save_in_half(model: nn.Module, path: Path) -> None:
    small = {name: tensor.half() for name, tensor in model.state_dict().items()}
    torch.save(small, path)


HALVED = save_in_half.__code__.co_firstlineno + 1


@pytest.mark.parametrize("audit", AUDITS)
def test_it_ends_the_program_and_names_the_line_that_made_it(tmp_path: Path, audit: str) -> None:
    model, path = model_of_counts(), tmp_path / "m.pt"
    session = nanwatch.watch(dir=tmp_path / "run", **AUDITS[audit])
    with pytest.raises(nanwatch.NonFiniteError), session:
        save_in_half(model, path)
    (incident,) = session.incidents
    assert session.stopped_by_incident
    assert (incident.seen_in, incident.phase, incident.kind) == ("checkpoint", "weights", "inf")
    assert incident.action == "raised"
    assert (incident.birth.op, incident.birth.line) == ("aten._to_copy.default", HALVED)
    assert incident.cause.id == "half-overflow"
    assert not path.exists() and (tmp_path / "m.nonfinite.pt").exists(), "written before the program ended"
    (fix,) = [r for r in incident.remedies if r.verified]
    assert fix.edit is not None and "tensor.bfloat16()" in fix.edit


@pytest.mark.parametrize(("policy", "written"), [("skip", "m.nonfinite.pt"), ("observe", "m.pt")])
def test_it_is_told_once_and_the_program_goes_on(
    tmp_path: Path, policy: str, written: str, capfd: pytest.CaptureFixture[str]
) -> None:
    model = model_of_counts()
    with nanwatch.watch(policy=policy, dir=tmp_path / "run") as session:
        save_in_half(model, tmp_path / "m.pt")
        save_in_half(model, tmp_path / "again.pt")
    (incident,) = session.incidents
    assert (incident.seen_in, incident.action) == ("checkpoint", "observed")
    assert (tmp_path / written).exists()
    assert ("m.nonfinite.pt" in capfd.readouterr().err) == (policy == "skip")


def test_weights_that_are_bad_are_seen_when_they_are_saved(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    session = nanwatch.watch(dir=tmp_path / "run")
    with pytest.raises(nanwatch.NonFiniteError), session:
        with torch.no_grad():
            model.weight.div_(torch.zeros(1))
        line = sys._getframe().f_lineno - 1
        torch.save({"model": model.state_dict()}, tmp_path / "m.pt")
    (incident,) = session.incidents
    assert (incident.seen_in, incident.phase) == ("checkpoint", "weights")
    assert (incident.birth.op, incident.birth.line) == ("aten.div_.Tensor", line)


def test_what_no_op_made_is_said_honestly(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    model.weight.data[0, 0] = float("nan")
    session = nanwatch.watch(dir=tmp_path / "run")
    with pytest.raises(nanwatch.NonFiniteError), session:
        torch.save(model.state_dict(), tmp_path / "m.pt")
    (incident,) = session.incidents
    assert (incident.birth.op, incident.birth.line, incident.phase) == (None, None, "weights")
    assert incident.birth.outputs[0].nan == 1 and not any(r.verified for r in incident.remedies)


class Observer(nn.Module):
    """Has seen nothing yet: its least value so far is infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("least", torch.full((2,), float("inf")))


@pytest.mark.parametrize("saved", [{"features": torch.tensor([float("nan")])}, Observer()])
def test_what_is_no_bad_state_stops_nobody(tmp_path: Path, saved: Any) -> None:
    with nanwatch.watch(dir=tmp_path / "run") as session:
        torch.save(saved.state_dict() if isinstance(saved, nn.Module) else saved, tmp_path / "m.pt")
    assert session.incidents == []


def test_a_save_that_fails_is_told_to_nobody(tmp_path: Path) -> None:
    heard: list[Any] = []
    bad = {"weight": torch.tensor([float("nan")])}
    checkpoint_gate.install(heard.append)
    try:
        with pytest.raises(RuntimeError):
            torch.save(bad, tmp_path / "no folder" / "m.pt")
        assert heard == []
        with checkpoint_gate.unchecked():
            torch.save(bad, tmp_path / "m.pt")
        assert heard == []
        torch.save(bad, tmp_path / "m.pt")
        assert [b.numbers.name for b in heard[0]] == ["weight"] and len(heard) == 1
    finally:
        checkpoint_gate.uninstall(heard.append)


def test_the_gate_holds_back_as_long_as_somebody_wants_it(tmp_path: Path) -> None:
    heard: list[Any] = []
    bad = {"weight": torch.tensor([float("nan")])}
    checkpoint_gate.install(heard.append, holds_back=False)
    try:
        with nanwatch.checkpoint_gate():
            torch.save(bad, tmp_path / "held.pt")
        torch.save(bad, tmp_path / "written.pt")
    finally:
        checkpoint_gate.uninstall(heard.append, holds_back=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["held.nonfinite.pt", "written.pt"]
    assert len(heard) == 2


def test_a_state_damaged_on_purpose_stops_nobody_and_the_next_is_told(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    session = nanwatch.watch(dir=tmp_path / "run")
    with pytest.raises(nanwatch.NonFiniteError), session:
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        state["weight"][0, 0] = float("nan")
        torch.save(state, tmp_path / "damaged.pt")
        assert session.incidents == []
        torch.save({"weight": model.weight.detach() / 0.0}, tmp_path / "m.pt")
    (incident,) = session.incidents
    assert incident.birth.op == "aten.div.Tensor"


@pytest.mark.parametrize("form", ["torch", "safetensors"])
def test_a_program_that_reads_what_it_has_saved_gets_it(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, model = tmp_path / f"m.{form}", nn.Linear(3, 2).eval()
    with nanwatch.watch(dir=tmp_path / "run") as session, pytest.raises(nanwatch.NonFiniteError):
        damaged = model.state_dict()
        damaged["weight"][1, 2] = float("nan")
        if form == "torch":
            torch.save(damaged, path)
            loaded = torch.load(path, weights_only=True)
        else:
            save_file(damaged, path)
            loaded = load_file(path)
        model.load_state_dict(loaded)
        with torch.no_grad():
            model(torch.ones(1, 3))
    assert not path.exists() and "what is read now is" in capsys.readouterr().err
    (incident,) = session.incidents
    assert incident.phase == "weights" and incident.seen_in == "output"
