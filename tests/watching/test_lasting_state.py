"""A bit that the memory turned over, and statistics that went bad, before any loss shows them."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import assert_same, state_of
from torch import nn

import nanwatch
from nanwatch.watching.turned_bits import Flipped, no_program_writes

Watch = Callable[..., nanwatch.Session]
STEPS, AT = 14, 9


def batch(step: int) -> torch.Tensor:
    return torch.randn(16, 8, generator=torch.Generator().manual_seed(step))


class Training:
    """A counter that goes back with the rest, so that every batch is seen once."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(0)
        parts = nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 1)
        self.model = nn.Sequential(*parts).to(dtype)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.step = 0
        self.dtype = dtype

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]

    def train(self, before: Callable[[], object] | None = None, after: Callable[[], object] = int) -> None:
        """`before`: done once, before step AT. `after`: after each step."""
        while self.step < STEPS:
            if before is not None and self.step == AT:
                before()
                before = None
            self.optimizer.zero_grad()
            out = self.model(batch(self.step).to(self.dtype))
            (out - 1).square().mean().backward()
            self.step += 1
            self.optimizer.step()
            after()

    def state(self) -> list[Any]:
        return state_of(self.model, self.optimizer)


def turn_over(tensor: torch.Tensor, index: int, bit: int) -> None:
    """Behind torch's back."""
    kind = {2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}[tensor.element_size()]
    kind.from_address(tensor.data_ptr() + tensor.element_size() * index).value ^= 1 << bit


def weight(t: Training) -> torch.Tensor:
    return t.model[3].weight


def moment(t: Training) -> torch.Tensor:
    return t.optimizer.state[t.model[0].weight]["exp_avg_sq"]


PLACES = {"3.weight": (weight, 7, [0, 7], 27), "exp_avg_sq of 0.weight": (moment, 11, [1, 3], 29)}


@pytest.mark.parametrize("name", PLACES)
def test_going_back_mends_a_turned_bit(watch: Watch, name: str, tmp_path: Path) -> None:
    tensor, index, place, bit = PLACES[name]
    never = Training()
    never.train()
    t = Training()
    with watch(t, policy="rollback", snapshot_every=4) as session:
        t.train(lambda: turn_over(tensor(t), index, bit))
    (incident,) = session.incidents
    found = (incident.step, incident.kind, incident.phase, incident.seen_in, incident.action)
    assert found == (AT, "bit", "weights", "memory", "rolled-back")
    assert incident.birth.outputs[0].name == name
    assert (incident.cause.id, incident.cause.certainty) == ("corrupted-memory", "proved")
    assert f"at {place}; after step {AT - 1}" in incident.notes[0] and f"Bit {bit} was" in incident.notes[0]
    assert_same(t.state(), never.state())
    written = json.loads((tmp_path / "run/incidents/0001/incident.json").read_text())
    assert (written["kind"], written["seen_in"]) == ("bit", "memory")


def test_raise_stops_before_the_bit_is_used_for_an_update(watch: Watch) -> None:
    t = Training()
    watch(t)
    with pytest.raises(nanwatch.NonFiniteError, match=r"A bit of 3\.weight was turned over"):
        t.train(lambda: turn_over(weight(t), 7, 28))
    assert t.step == AT + 1 and t.optimizer.state[weight(t)]["step"] == AT


def test_an_optimizer_that_calls_the_model_itself(watch: Watch) -> None:
    """Nothing was made with the bad weight yet: the step goes on from the last good state."""
    t = Training()
    t.optimizer = torch.optim.LBFGS(t.model.parameters(), lr=0.1, max_iter=3)

    def closure() -> torch.Tensor:
        t.optimizer.zero_grad()
        loss = (t.model(batch(t.step)) - 1).square().mean()
        loss.backward()
        return loss

    with watch(t, policy="rollback", snapshot_every=1, explain=False) as session:
        for t.step in range(STEPS):
            if t.step == AT:
                good = [p.clone() for p in t.model.parameters()]
                turn_over(weight(t), 7, 28)
                assert not torch.equal(weight(t), good[4])
            t.optimizer.step(closure)
            if t.step == AT:
                assert all(
                    float((p - g).abs().max()) < 1 for p, g in zip(t.model.parameters(), good, strict=True)
                )
    (incident,) = session.incidents
    assert (incident.step, incident.kind, incident.action) == (AT, "bit", "rolled-back")


@pytest.mark.parametrize("policy", ["skip", "observe"])
def test_what_skipping_cannot_help_is_said_once(watch: Watch, policy: str) -> None:
    t = Training()
    with watch(t, policy=policy) as session:
        t.train(lambda: turn_over(weight(t), 7, 28))
    (incident,) = session.incidents
    assert incident.action == "observed" and t.step == STEPS
    assert any("Skipping this step would not help" in n for n in incident.notes) is (policy == "skip")


def test_a_frozen_weight(watch: Watch) -> None:
    """Nobody writes it, so it is looked at in every step; the way back leads before its fault."""
    t = Training()
    t.model[0].requires_grad_(False)
    t.optimizer = torch.optim.Adam([p for p in t.model.parameters() if p.requires_grad], lr=0.01)
    good = t.model[0].weight.clone()
    with watch(t, policy="rollback", snapshot_every=1) as session:
        t.train(lambda: turn_over(t.model[0].weight, 30, 28))
    (incident,) = session.incidents
    assert (incident.birth.outputs[0].name, incident.action) == ("0.weight", "rolled-back")
    assert torch.equal(t.model[0].weight, good)


@pytest.mark.parametrize(
    ("dtype", "bit"), [(torch.float64, 57), (torch.float64, 62), (torch.bfloat16, 12), (torch.float16, 14)]
)
def test_other_dtypes(watch: Watch, dtype: torch.dtype, bit: int) -> None:
    t = Training(dtype)
    t.optimizer = torch.optim.SGD(t.model.parameters(), lr=0.01, momentum=0.9)
    with watch(t, policy="observe", explain=False) as session:
        t.train(lambda: turn_over(t.optimizer.state[weight(t)]["momentum_buffer"], 11, bit))
    told = [i for i in session.incidents if i.kind == "bit"]
    assert [(i.step, i.birth.outputs[0].name) for i in told] == [(AT, "momentum_buffer of 3.weight")]


def _numpy(t: Training) -> None:
    weight(t).detach().numpy()[0, 7] *= -2


def _numpy_clip(t: Training) -> None:
    values = weight(t).detach().numpy()
    values.clip(-0.1, 0.1, out=values)


def _swap(t: Training) -> None:
    """As averages are swapped in for an evaluation."""
    for p in t.model.parameters():
        kept = p.data
        p.data = kept * 0.5
        p.data = kept


def _swap_values(t: Training) -> None:
    for p in t.model.parameters():
        p.data.copy_(p.data * 0.999)


def _load(t: Training) -> None:
    t.model.load_state_dict({k: v * 1.01 for k, v in t.model.state_dict().items()})


def _another_optimizer(t: Training) -> None:
    torch.optim.SGD([weight(t)], lr=0.0, weight_decay=0.1).step()


def _one_value_by_data(t: Training) -> None:
    """Seen on the tape though it looks like a fault of the memory."""
    weight(t).data[0, 7] *= 2.0**64 if abs(float(weight(t)[0, 7])) < 1 else 2.0**-64


def _foreach(t: Training) -> None:
    torch._foreach_mul_([p.data for p in t.model.parameters()], 0.5)


def _by_bits(t: Training) -> None:
    """A program that works on bits itself, through torch."""
    weight(t).detach().view(torch.int32)[0, 7] ^= 1 << 28


LEGITIMATE = {
    "numpy": _numpy,
    "clip in numpy": _numpy_clip,
    "swap": _swap,
    "swap values": _swap_values,
    "load_state_dict": _load,
    "another optimizer": _another_optimizer,
    "one value through .data": _one_value_by_data,
    "clamp_": lambda t: weight(t).data.clamp_(-0.05, 0.05),
    "data.copy_": lambda t: weight(t).data.copy_(torch.randn(1, 32)),
    "foreach": _foreach,
    "bits through torch": _by_bits,
    "a power of two": lambda t: t.model[3].bias.detach().numpy().fill(2.0**-16),
}


@pytest.mark.parametrize("how", LEGITIMATE)
def test_what_the_program_writes_is_no_turned_bit(watch: Watch, how: str) -> None:
    t = Training()
    with watch(t, policy="observe", explain=False) as session:
        for start in range(2):
            t.step = start
            t.train(lambda: LEGITIMATE[how](t), after=lambda: t.model[1].weight.data.clamp_(min=0.1))
    assert [i for i in session.incidents if i.kind == "bit"] == []


def test_zeroing_a_power_of_two_is_no_turned_bit(watch: Watch) -> None:
    t = Training()
    with torch.no_grad():
        t.model[0].weight[1, 3] = 2.0
    t.model[0].requires_grad_(False)

    def prune() -> None:
        t.model[0].weight.numpy()[1, 3] = 0.0

    with watch(t, policy="observe", explain=False) as session:
        t.train(prune)
    assert session.incidents == []


def _write(tensor: torch.Tensor) -> None:
    turn_over(tensor, 7, 28)


def test_memory_that_another_process_writes_is_no_turned_bit(watch: Watch) -> None:
    t = Training()
    weight(t).data.share_memory_()

    def elsewhere() -> None:
        other = multiprocessing.get_context("fork").Process(target=_write, args=(weight(t).detach(),))
        other.start()
        other.join()
        assert other.exitcode == 0

    with watch(t, policy="observe", explain=False) as session:
        t.train(elsewhere)
    assert session.incidents == []


@pytest.mark.parametrize(
    ("before", "bits"),
    [
        (0.3, 1 << 3),  # the mantissa: a clamp may do that
        (0.3, 1 << 31),  # the sign
        (0.3, 1 << 24),  # a factor of 4
        (0.3, (1 << 28) + (1 << 2)),
        (2.0, 1 << 30),
        (1.5, 1 << 30),
        (0.0, 1 << 30),
    ],
)
def test_what_a_program_might_write(before: float, bits: int) -> None:
    assert not no_program_writes(Flipped((0,), 1.0, bits, before), torch.float32)
    assert no_program_writes(Flipped((0,), 1.0, 1 << 28, 0.3), torch.float32)


# Statistics


def spoil(t: Training) -> None:
    t.model[1].running_var.fill_(float("nan"))


def test_going_back_mends_statistics(watch: Watch) -> None:
    never = Training()
    never.train()
    t = Training()
    with watch(t, policy="rollback", snapshot_every=100, explain=False) as session:
        t.train(lambda: spoil(t))
    (incident,) = session.incidents
    assert (incident.step, incident.phase, incident.action) == (AT, "weights", "rolled-back")
    assert incident.birth.module == "1"
    assert_same(t.state(), never.state())


@pytest.mark.parametrize("policy", ["skip", "observe"])
def test_bad_statistics_are_said_once(watch: Watch, policy: str) -> None:
    t = Training()
    with watch(t, policy=policy, explain=False) as session:
        t.train(lambda: spoil(t))
    assert [(i.step, i.action) for i in session.incidents] == [(AT, "observed")]
    assert not t.model[1].running_var.isfinite().any()


class Beside(nn.Module):
    """Batch norm on a branch that the loss does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 1)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.norm(x.sqrt())
        return self.body(x)


def test_statistics_that_this_step_spoils_are_mended_by_skipping_it(watch: Watch) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        torch.manual_seed(0)
        model = Beside()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(6):
            if step == left_out:
                continue
            x = batch(step) if step == bad else batch(step).abs()
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return state_of(model, optimizer)

    with watch(policy="skip", explain=False) as session:
        found = play(3, None)
    assert [(i.step, i.action, i.kind) for i in session.incidents] == [(3, "skipped", "nan")]
    assert_same(found, play(None, 3))
