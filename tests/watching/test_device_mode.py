"""Device mode, with fused optimizers on the CPU: a bad step is a no-op, and is seen a step late."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import assert_same, bad_loss, batch, good_loss, state_of
from torch import nn

import nanwatch

Watch = Callable[..., nanwatch.Session]
FUSED: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, fused=True),
}


def plain_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def step_once(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, bad: bool) -> None:
    optimizer.zero_grad()
    out = model(batch(step))
    (bad_loss if bad else good_loss)(out).backward()
    optimizer.step()


@pytest.mark.parametrize("name", FUSED)
def test_a_bad_step_is_a_no_op_and_latches(watch: Watch, name: str) -> None:
    model = plain_network()
    optimizer = FUSED[name](model.parameters())
    session = watch(model, optimizer, mode="device", policy="raise")
    for step in range(3):
        step_once(model, optimizer, step, bad=False)
    before = state_of(model, optimizer)
    late = None
    try:
        step_once(model, optimizer, 3, bad=True)
        assert_same(state_of(model, optimizer), before)
        for step in (4, 5):
            step_once(model, optimizer, step, bad=False)
            assert_same(state_of(model, optimizer), before)
        session.close()
    except nanwatch.NonFiniteError as error:
        late = error
    assert late is not None
    assert_same(state_of(model, optimizer), before)
    incident = late.incident
    assert (incident.step, incident.action, incident.birth.op) == (3, "raised", "aten.sqrt.default")
    assert incident.birth.code == "return torch.sqrt(out.square().mean() * 0 - 1)"
    assert "found_inf" not in vars(optimizer)


@pytest.mark.parametrize("name", FUSED)
def test_skip_clears_the_latch_and_training_goes_on(watch: Watch, tmp_path: Path, name: str) -> None:
    model = plain_network()
    optimizer = FUSED[name](model.parameters())
    session = watch(model, optimizer, mode="device", policy="skip")
    for step in range(8):
        step_once(model, optimizer, step, bad=step == 3)
    session.close()
    assert [(i.step, i.action, i.birth.op) for i in session.incidents] == [
        (3, "skipped", "aten.sqrt.default")
    ]
    lost = [3]  # a step that was held back by the latch, before the host had seen it, is lost too
    found = state_of(model, optimizer)
    for extra in ([], [4], [4, 5]):
        expected = plain_network()
        its_optimizer = FUSED[name](expected.parameters())
        for step in range(8):
            if step not in lost + extra:
                step_once(expected, its_optimizer, step, bad=False)
        try:
            assert_same(found, state_of(expected, its_optimizer))
            break
        except AssertionError:
            continue
    else:
        pytest.fail("the weights are those of no training with the bad step left out")
    assert any(
        bool((p != q).any()) for p, q in zip(model.parameters(), plain_network().parameters(), strict=True)
    )


def test_the_last_step_is_judged_at_the_end(watch: Watch) -> None:
    model = plain_network()
    optimizer = FUSED["adamw"](model.parameters())
    session = watch(mode="device")
    step_once(model, optimizer, 0, bad=False)
    before = state_of(model, optimizer)
    step_once(model, optimizer, 1, bad=True)
    with pytest.raises(nanwatch.NonFiniteError) as raised:
        session.close()
    assert raised.value.incident.step == 1
    assert_same(state_of(model, optimizer), before)


def test_a_bad_gradient_of_a_finite_loss(watch: Watch) -> None:
    parameter = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, fused=True, weight_decay=0.0)
    session = watch(mode="device", policy="skip")
    for _ in range(3):
        optimizer.zero_grad()
        loss = parameter.square().sum().sqrt()
        loss.backward()
        optimizer.step()
    session.close()
    assert parameter.tolist() == [0.0, 0.0, 0.0]
    first = session.incidents[0]
    assert (first.step, first.phase, first.birth.code) == (
        0,
        "backward",
        "loss = parameter.square().sum().sqrt()",
    )


def test_clipping_does_not_hide_it(watch: Watch) -> None:
    model = plain_network()
    optimizer = FUSED["sgd"](model.parameters())
    before = state_of(model)
    session = watch(mode="device", policy="skip")
    optimizer.zero_grad()
    bad_loss(model(batch(0))).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    session.close()
    assert_same(state_of(model), before)
    assert [i.step for i in session.incidents] == [0]


def test_an_optimizer_that_is_not_fused_is_judged_by_the_host(watch: Watch) -> None:
    model = plain_network()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    before = state_of(model)
    watch(mode="device")
    with pytest.raises(nanwatch.NonFiniteError):
        step_once(model, optimizer, 0, bad=True)
    assert_same(state_of(model), before)


def test_steps_are_logged_in_their_order(watch: Watch, tmp_path: Path) -> None:
    model = plain_network()
    optimizer = FUSED["adam"](model.parameters())
    session = watch(mode="device")
    for step in range(5):
        step_once(model, optimizer, step, bad=False)
    session.close()
    lines = [json.loads(line) for line in (tmp_path / "run/steps-rank0.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(5))
    assert all(isinstance(line.get("loss"), float) for line in lines)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_the_programs_default_dtype_is_not_the_verdicts(watch: Watch, dtype: torch.dtype) -> None:
    was = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        session = watch(model, optimizer, mode="device")
        before = model.weight.detach().clone()
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).mean().backward()
            optimizer.step()
        session.close()
    finally:
        torch.set_default_dtype(was)
    assert not torch.equal(model.weight.detach(), before)


def test_a_loss_beyond_single_precision_is_no_bad_one(watch: Watch) -> None:
    model = plain_network().double()
    optimizer = FUSED["sgd"](model.parameters())
    session = watch(model, optimizer, mode="device", policy="raise")
    for step in range(4):
        optimizer.zero_grad()
        loss = model(batch(step).double()).square().mean().detach() * 0 + 1e200
        (loss + model(batch(step).double()).square().mean()).backward()
        optimizer.step()
    session.close()
    assert session.incidents == []


def two_groups(model: nn.Module) -> torch.optim.Optimizer:
    groups = [{"params": [p], "lr": 0.01 * (n + 1)} for n, p in enumerate(model.parameters())]
    return torch.optim.AdamW(groups, fused=True)


def counts_of(optimizer: torch.optim.Optimizer) -> list[float]:
    """As they lie in memory: whoever asks for the state_dict gets them settled."""
    return [float(state["step"]) for state in optimizer.state.values()]


@pytest.fixture
def counted_back(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is subtracted from the counters of optimizers."""
    found: list[Any] = []
    original = torch._foreach_sub_

    def subtract(counters: Any, what: Any, **kwargs: Any) -> Any:
        found.append(what)
        return original(counters, what, **kwargs)

    monkeypatch.setattr(torch, "_foreach_sub_", subtract)
    return found


def test_good_steps_count_nothing_back(watch: Watch, counted_back: list[Any]) -> None:
    model = plain_network()
    optimizer, there = two_groups(model), torch._foreach_sub_
    session = watch(mode="device")
    for step in range(5):
        step_once(model, optimizer, step, bad=False)
        assert torch._foreach_sub_ is there
    session.close()
    assert counted_back == []
    assert counts_of(optimizer) == [5.0] * 4


def test_a_bad_step_is_counted_back_once_it_is_known(watch: Watch, counted_back: list[Any]) -> None:
    model = plain_network()
    optimizer = two_groups(model)
    watch(mode="device")
    step_once(model, optimizer, 0, bad=False)
    with pytest.raises(nanwatch.NonFiniteError):
        for step in range(1, 9):
            step_once(model, optimizer, step, bad=step == 1)
    assert counts_of(optimizer) == [1.0] * 4
    assert set(counted_back) == {1}


def test_a_bad_step_is_counted_back_when_somebody_saves(watch: Watch) -> None:
    model = plain_network()
    optimizer = two_groups(model)
    session = watch(mode="device", policy="skip")
    for step in range(3):
        step_once(model, optimizer, step, bad=step == 2)
    saved = optimizer.state_dict()
    assert [float(state["step"]) for state in saved["state"].values()] == [2.0] * 4
    session.close()
    assert [i.step for i in session.incidents] == [2]
    assert counts_of(optimizer) == [2.0] * 4


def test_a_bad_step_is_counted_back_where_nanwatch_steps_aside(watch: Watch) -> None:
    model = plain_network()
    optimizer = two_groups(model)
    session = watch(mode="device")
    for step in range(3):
        step_once(model, optimizer, step, bad=step == 2)
    session.watcher.shield.give_up(RuntimeError("of ours"))
    assert counts_of(optimizer) == [2.0] * 4


def test_a_step_that_raises_leaves_nothing_of_ours_in_torch(watch: Watch, counted_back: list[Any]) -> None:
    model = plain_network()
    optimizer, there = FUSED["adamw"](model.parameters()), torch._foreach_sub_
    session = watch(mode="device")
    step_once(model, optimizer, 0, bad=False)
    eps = optimizer.param_groups[0].pop("eps")
    with pytest.raises(KeyError):
        step_once(model, optimizer, 1, bad=False)
    optimizer.param_groups[0]["eps"] = eps
    step_once(model, optimizer, 2, bad=False)
    assert torch._foreach_sub_ is there
    assert counts_of(optimizer) == [2.0] * 4
    session.close()
    assert counted_back == [] and session.incidents == []


class Levelled(nn.Module):
    """Keeps a level that it needs only when it is evaluated."""

    def __init__(self, on_purpose: bool = False) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.layer = nn.Linear(4, 1)
        self.register_buffer("smallest", torch.full((4,), float("inf") if on_purpose else 0.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.smallest += 1
        out: torch.Tensor = self.layer(self.norm(x))
        return out


def train_levelled(model: nn.Module, optimizer: torch.optim.Optimizer, bad: int = -1, steps: int = 8) -> None:
    for step in range(steps):
        x = batch(step)
        if step == bad:
            x = x * torch.tensor([1.0, 1e25, 1.0, 1.0])
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("policy", ["raise", "observe"])
def test_statistics_that_no_loss_shows_are_seen_in_their_step(watch: Watch, policy: str) -> None:
    torch.manual_seed(0)
    model = Levelled()
    optimizer = FUSED["adamw"](model.parameters())
    session = watch(model, optimizer, mode="device", policy=policy, audit_seconds=0.0, audit_share=0.0)
    if policy == "raise":
        with pytest.raises(nanwatch.NonFiniteError):
            train_levelled(model, optimizer, bad=3)
    else:
        train_levelled(model, optimizer, bad=3)
    session.close()
    (incident,) = session.incidents
    assert (incident.step, incident.phase, incident.kind) == (3, "forward", "inf")
    assert (incident.birth.op, incident.birth.module) == ("aten.native_batch_norm.default", "norm")
    assert not any("On replay" in note for note in incident.notes)


def test_infinities_that_a_buffer_holds_on_purpose_are_looked_at_once(watch: Watch) -> None:
    torch.manual_seed(0)
    model = Levelled(on_purpose=True)
    optimizer = FUSED["adamw"](model.parameters())
    session = watch(model, optimizer, mode="device", policy="raise", audit_seconds=0.0, audit_share=0.0)
    train_levelled(model, optimizer)
    session.close()
    assert not session.incidents
