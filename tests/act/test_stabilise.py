"""`nanwatch.stabilise`: the curve against its formula, clipping against torch's, checkpoints, and the way
back."""

from __future__ import annotations

import copy
import io
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nursery import Nursery
from torch import nn

import nanwatch
from nanwatch import NanwatchError
from nanwatch.act.rate_curve import share_of_rate


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def large_loss(model: nn.Module, step: int = 0) -> torch.Tensor:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
    return ((model(x) - 50) ** 2).mean()


def rates_of(optimizer: torch.optim.Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


# The schedule


@settings(max_examples=60, deadline=None)
@given(total=st.integers(1, 60), data=st.data())
def test_the_rate_is_the_closed_form_at_every_step(total: int, data: st.DataObject) -> None:
    warmup = data.draw(st.integers(0, total - 1))
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    schedule = nanwatch.stabilise(optimizer, total_steps=total, warmup_steps=warmup, clip_norm=None)
    for step in range(total + 3):
        if step < warmup:
            expected = 0.5 * (step + 1) / warmup
        elif step < total:
            expected = 0.25 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))
        else:
            expected = 0.0
        assert rates_of(optimizer) == pytest.approx([expected], abs=1e-12)
        assert schedule.get_last_lr() == rates_of(optimizer)
        optimizer.step()
        schedule.step()


def test_the_first_step_learns_and_the_top_is_reached() -> None:
    shares = [share_of_rate(step, 100, 10) for step in range(101)]
    assert shares[0] == 0.1 and max(shares) == shares[9] == shares[10] == 1.0 and shares[100] == 0.0
    assert shares[10:] == sorted(shares[10:], reverse=True)


def test_without_a_wish_a_tenth_is_warm_up_and_the_rates_stay() -> None:
    optimizer = torch.optim.AdamW(small_model().parameters(), lr=3e-3)
    schedule = nanwatch.stabilise(optimizer, total_steps=200)
    assert schedule.warmup_steps == 20 and schedule.base_lrs == [3e-3]
    assert nanwatch.stabilise(optimizer, total_steps=10**6).warmup_steps == 2000


def test_groups_keep_their_ratio_to_the_fastest() -> None:
    model = small_model()
    optimizer = torch.optim.AdamW(
        [{"params": model[0].parameters(), "lr": 1e-3}, {"params": model[2].parameters(), "lr": 4e-3}]
    )
    nanwatch.stabilise(optimizer, total_steps=10, warmup_steps=0, learning_rate=2e-3)
    assert rates_of(optimizer) == pytest.approx([5e-4, 2e-3])


def test_a_rate_that_is_a_tensor_stays_one() -> None:
    optimizer = torch.optim.AdamW(small_model().parameters(), lr=torch.tensor(1e-2))
    rate = optimizer.param_groups[0]["lr"]
    schedule = nanwatch.stabilise(optimizer, total_steps=4, warmup_steps=2)
    assert optimizer.param_groups[0]["lr"] is rate and float(rate) == pytest.approx(5e-3)
    schedule.close()
    assert optimizer.param_groups[0]["lr"] is rate and float(rate) == pytest.approx(1e-2)


def test_the_state_goes_through_a_checkpoint() -> None:
    def train(steps: range, model: nn.Module, optimizer: Any, schedule: Any) -> None:
        for step in steps:
            optimizer.zero_grad()
            large_loss(model, step).backward()
            optimizer.step()
            schedule.step()

    whole = small_model()
    for_whole = torch.optim.AdamW(whole.parameters(), lr=1e-2)
    train(range(10), whole, for_whole, nanwatch.stabilise(for_whole, total_steps=12, warmup_steps=3))

    first = small_model()
    for_first = torch.optim.AdamW(first.parameters(), lr=1e-2)
    schedule = nanwatch.stabilise(for_first, total_steps=12, warmup_steps=3)
    train(range(6), first, for_first, schedule)
    file = io.BytesIO()
    torch.save([first.state_dict(), for_first.state_dict(), schedule.state_dict()], file)
    file.seek(0)
    weights, state, position = torch.load(file, weights_only=True)

    second = small_model()
    for_second = torch.optim.AdamW(second.parameters(), lr=1e-2)
    schedule = nanwatch.stabilise(for_second, total_steps=12, warmup_steps=3)
    second.load_state_dict(weights)
    for_second.load_state_dict(state)
    schedule.load_state_dict(position)
    assert schedule.last_epoch == 6 and rates_of(for_second) == rates_of(for_first)
    train(range(6, 10), second, for_second, schedule)
    for one, other in zip(whole.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_state_of_another_training_is_refused() -> None:
    model = small_model()
    two = torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[2].parameters()}], lr=0.1)
    state = nanwatch.stabilise(two, total_steps=9).state_dict()
    one = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = nanwatch.stabilise(one, total_steps=5)
    with pytest.raises(NanwatchError, match="2 parameter groups, this one has 1"):
        schedule.load_state_dict(state)
    assert schedule.total_steps == 5


# Clipping


@pytest.mark.parametrize("clip_norm", [0.5, 1.0, 1e6])
def test_clipping_is_torchs(clip_norm: float) -> None:
    mine, other = small_model(), small_model()
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.1)
    nanwatch.stabilise(optimizer, total_steps=5, warmup_steps=0, clip_norm=clip_norm)
    for_other = torch.optim.SGD(other.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        large_loss(mine, step).backward()
        optimizer.step()
        for_other.zero_grad()
        large_loss(other, step).backward()
        norm = nn.utils.clip_grad_norm_(other.parameters(), clip_norm)
        assert norm > 1, "nothing was clipped: this test could not fail"
        for_other.step()
        for one, two in zip(mine.parameters(), other.parameters(), strict=True):
            assert torch.equal(one, two) and torch.equal(one.grad, two.grad)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale_first", [False, True])
def test_with_a_scaler_the_gradients_are_clipped_without_their_scale(
    fused: bool, unscale_first: bool
) -> None:
    mine, other = small_model(), small_model()
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.1, fused=fused)
    nanwatch.stabilise(optimizer, total_steps=5, warmup_steps=0, clip_norm=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(large_loss(mine)).backward()
    if unscale_first:
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()

    for_other = torch.optim.SGD(other.parameters(), lr=0.1)
    large_loss(other).backward()
    nn.utils.clip_grad_norm_(other.parameters(), 1.0)
    for_other.step()
    for one, two in zip(mine.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_closure_is_clipped_after_it_has_made_the_gradients(by_name: bool) -> None:
    model = small_model()
    before = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    nanwatch.stabilise(optimizer, total_steps=5, warmup_steps=0, clip_norm=0.25)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = large_loss(model)
        loss.backward()
        return loss

    loss = optimizer.step(closure=closure) if by_name else optimizer.step(closure)
    assert loss == large_loss(before)
    moved = [a - b for a, b in zip(model.parameters(), before.parameters(), strict=True)]
    assert float(nn.utils.get_total_norm([m.detach() for m in moved])) == pytest.approx(0.25, rel=1e-4)


def test_an_optimizer_in_another_ones_coat_is_clipped() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    optimizer = accelerator.prepare(torch.optim.SGD(small_model().parameters(), lr=1.0))
    schedule = nanwatch.stabilise(optimizer, total_steps=5)
    assert schedule.optimizer is optimizer.optimizer
    assert nanwatch.stabilise(optimizer.optimizer, total_steps=5) is schedule


SHARDED = """
import os
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
import nanwatch

def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + os.environ["MEETING"], rank=rank, world_size=2)
x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
sharded, whole = model(), model()
fully_shard(sharded, mesh=init_device_mesh("cpu", (2,)))
optimizer = torch.optim.SGD(sharded.parameters(), lr=0.1)
nanwatch.stabilise(optimizer, total_steps=5, warmup_steps=0, clip_norm=0.5)
(sharded(x) - 50).square().mean().backward()
optimizer.step()
for_whole = torch.optim.SGD(whole.parameters(), lr=0.1)
(whole(x) - 50).square().mean().backward()
assert nn.utils.clip_grad_norm_(whole.parameters(), 0.5) > 1
for_whole.step()
for mine, other in zip(sharded.parameters(), whole.parameters()):
    torch.testing.assert_close(mine.full_tensor(), other.detach())
dist.destroy_process_group()
"""


def test_sharded_gradients_are_clipped_by_their_whole_norm(tmp_path: Path, nursery: Nursery) -> None:
    program = tmp_path / "sharded.py"
    program.write_text(SHARDED)
    ranks = nursery.run_ranks([str(program)], tmp_path, tmp_path / "meeting")
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(rank.stderr for rank in ranks)


def test_where_clipping_fails_training_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    embedding = nn.Embedding(4, 3, sparse=True)
    before = embedding.weight.detach().clone()
    optimizer = torch.optim.SparseAdam(embedding.parameters(), lr=0.1)
    nanwatch.stabilise(optimizer, total_steps=5, warmup_steps=0)
    for _ in range(2):
        optimizer.zero_grad()
        embedding(torch.tensor([1])).sum().backward()
        optimizer.step()
    assert not torch.equal(embedding.weight, before)
    said = capsys.readouterr().err
    assert said.count("could not be clipped") == 1 and "clip_norm=None" in said


# Once, again, and back


def test_the_same_call_again_changes_nothing() -> None:
    optimizer = torch.optim.SGD(small_model().parameters(), lr=0.1)
    first = nanwatch.stabilise(optimizer, total_steps=20, learning_rate=0.2)
    hooks = len(optimizer._optimizer_step_pre_hooks)
    assert nanwatch.stabilise(optimizer, total_steps=20, learning_rate=0.2) is first
    assert len(optimizer._optimizer_step_pre_hooks) == hooks == 1
    second = nanwatch.stabilise(optimizer, total_steps=40)
    assert second is not first and second.base_lrs == [0.1], "the rates of the first call are taken back"
    assert len(optimizer._optimizer_step_pre_hooks) == 1


def test_close_puts_everything_back() -> None:
    optimizer = torch.optim.SGD(small_model().parameters(), lr=0.1)
    before = copy.deepcopy(optimizer.state_dict())
    schedule = nanwatch.stabilise(optimizer, total_steps=20, learning_rate=0.7, warmup_steps=5)
    optimizer.step()
    schedule.step()
    assert optimizer.state_dict() != before
    schedule.close()
    schedule.close()
    assert optimizer.state_dict() == before and not optimizer._optimizer_step_pre_hooks


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"total_steps": 0}, "total_steps is 0; a whole number of at least 1"),
        ({"total_steps": 2.5}, "total_steps is 2.5"),
        ({"total_steps": True}, "total_steps is True"),
        ({"warmup_steps": -1}, "warmup_steps is -1; a whole number of at least 0"),
        ({"warmup_steps": 10}, "warmup_steps is 10, total_steps is 10"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; a finite number above 0"),
        ({"learning_rate": math.nan}, "learning_rate is nan"),
        ({"clip_norm": -1}, "clip_norm is -1"),
        ({"clip_norm": "1"}, "clip_norm is '1'"),
        ({"optimizer": nn.Linear(1, 1)}, "given a Linear; a torch.optim.Optimizer was expected"),
    ],
)
def test_impossible_values_are_refused_and_nothing_is_changed(wrong: dict[str, Any], said: str) -> None:
    optimizer = torch.optim.SGD(small_model().parameters(), lr=0.1)
    arguments = {"optimizer": optimizer, "total_steps": 10, **wrong}
    with pytest.raises(NanwatchError) as error:
        nanwatch.stabilise(**arguments)
    assert said in str(error.value) and "\n" not in str(error.value)
    assert rates_of(optimizer) == [0.1] and not optimizer._optimizer_step_pre_hooks
