"""The training that `bench.soak` puts faults into. It goes on from the last good state in its folder, and
says on stdout what happened, a JSON line each."""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import random
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import nanwatch

TOP_BIT = 1 << 30
"""Of a float32: the top bit of its exponent."""

FAULTS = (
    "nan in the batch",
    "inf in the batch",
    "nan gradient",
    "overflow in the loss",
    "log of a negative",
    "division by zero",
    "bit flipped in a weight",
    "bit flipped in a moment",
    "bad statistics",
    "rate far too high",
    "killed",
    "full disk",
)


class Progress:
    """How far the training is: goes back with the rest."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = int(state["step"])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.1))
        self.head = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
    return x, x.sum(1, keepdim=True).tanh()


def loss_of(out: torch.Tensor, y: torch.Tensor, fault: str | None) -> torch.Tensor:
    loss = (out - y).square().mean()
    if fault == "overflow in the loss":
        return loss * torch.exp(out.detach().abs().max() + 200)
    if fault == "log of a negative":
        return loss + torch.log(loss.detach() - loss.detach() - 1)
    if fault == "division by zero":
        return loss / (y.mean() - y.mean())
    return loss


def flip(tensor: torch.Tensor, chance: random.Random) -> None:
    """In a value that is not 0, and behind torch's back, as a fault of the memory would."""
    places = tensor.detach().view(-1).nonzero().view(-1).tolist()
    if places:
        address = tensor.data_ptr() + tensor.element_size() * chance.choice(places)
        ctypes.c_uint32.from_address(address).value ^= TOP_BIT


def all_finite(model: nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    """Weights, statistics and moments."""
    moments = [value for state in optimizer.state.values() for value in state.values()]
    return all(bool(t.isfinite().all()) for t in [*model.state_dict().values(), *moments])


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def train(steps: int, plan: dict[int, str], folder: Path, snapshot_every: int) -> None:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    progress = Progress()
    with nanwatch.LastGood(model, optimizer, schedule, progress, dir=folder / "last-good") as before:
        try:
            before.rollback()
            say(event="resumed", step=progress.step)
        except nanwatch.NanwatchError:
            pass
    done = (
        set(json.loads((folder / "injected.json").read_text()))
        if (folder / "injected.json").exists()
        else set()
    )
    policy = nanwatch.Policy(3, 100, rollbacks=10**6)
    options: Any = {"explain": False, "snapshot_every": snapshot_every}
    with nanwatch.watch(
        model, optimizer, schedule, progress, policy=policy, dir=folder, **options
    ) as session:
        seen = warned = 0
        while progress.step < steps:
            step = progress.step
            fault = plan.get(step) if step not in done else None
            if fault is not None:
                done.add(step)
                (folder / "injected.json").write_text(json.dumps(sorted(done)))
                say(event="fault", step=step, fault=fault)
            one_step(model, optimizer, schedule, progress, fault)
            acted = session.decisions.skipped + session.decisions.rolled_back
            if acted > seen:
                say(event="acted", step=step, skipped=session.decisions.skipped)
            seen = acted
            if not all_finite(model, optimizer):
                say(event="not finite", step=step)
            for warning in session.warnings[warned:]:
                say(event="warning", step=step, id=warning.id)
            warned = len(session.warnings)
        x, y = batch(0)
        say(
            event="end",
            step=progress.step,
            finite=all_finite(model, optimizer),
            loss=float((model.eval()(x) - y).square().mean()),
            skipped=session.decisions.skipped,
            rolled_back=session.decisions.rolled_back,
        )


def one_step(model: Net, optimizer: Any, schedule: Any, progress: Progress, fault: str | None) -> None:
    x, y = batch(progress.step)
    chance = random.Random(progress.step)
    if fault == "nan in the batch":
        x[chance.randrange(16), chance.randrange(8)] = math.nan
    elif fault == "inf in the batch":
        x[chance.randrange(16)] = x[0] / 0
    elif fault == "bit flipped in a weight":
        flip(chance.choice(list(model.parameters())), chance)
    elif fault == "bit flipped in a moment" and optimizer.state:
        flip(chance.choice([s["exp_avg"] for s in optimizer.state.values()]), chance)
    elif fault == "bad statistics":
        model.body[1].running_var.fill_(math.nan)
        model.body[1].running_mean.fill_(math.nan)
    elif fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "full disk":
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    rates = [group["lr"] for group in optimizer.param_groups]
    if fault == "rate far too high":
        for group in optimizer.param_groups:
            group["lr"] = 1e37
    handle = None
    if fault == "nan gradient":
        handle = model.head.weight.register_hook(lambda gradient: gradient * math.nan)
    optimizer.zero_grad()
    loss_of(model(x), y, fault).backward()
    progress.step += 1
    optimizer.step()
    if fault == "rate far too high":
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
    schedule.step()
    if handle is not None:
        handle.remove()
    if fault == "full disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--snapshot-every", type=int, default=20)
    options = parser.parse_args()
    plan = {int(k): v for k, v in json.loads((options.folder / "plan.json").read_text()).items()}
    train(options.steps, plan, options.folder, options.snapshot_every)
    sys.exit(0)
