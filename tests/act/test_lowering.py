"""Rates that a warning lowers: by how much, how far down, and put back to the bit where one rank cannot."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR

import nanwatch
from nanwatch.act import lowering
from nanwatch.act.alarm import OVERFLOW, Alarm
from nanwatch.act.early_warning import EarlyWarning
from nanwatch.act.lowering import Lowering, LoweringTogether
from nanwatch.act.precautions import Precautions
from nanwatch.records import StepFacts
from nanwatch.watching.updates import Updates

ALARM = Alarm(OVERFLOW, 1, 7, "loss", 2, 1.0, 100.0, 2.0, 50)


def optimizer_of(*rates: Any) -> torch.optim.SGD:
    return torch.optim.SGD([{"params": [nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates], lr=1.0)


def rates_of(optimizer: Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


class Watched:
    """A watcher as far as rates are concerned."""

    def __init__(self, *optimizers: Optimizer, groups: tuple[str, ...] = ("all",)) -> None:
        self.updates = SimpleNamespace(active=list(optimizers))
        self.lockstep = SimpleNamespace(groups=groups, wish=False, wishes=None, together=True)
        self.step = 8
        self.events: list[str] = []

    def event(self, name: str) -> None:
        self.events.append(name)


def together(watched: Any, early: EarlyWarning | None = None, tells_why: bool = False) -> LoweringTogether:
    return LoweringTogether(Lowering(0.5), watched, early, tells_why)


def test_a_process_that_trains_alone_lowers_its_rate_at_once(tmp_path: Path, capfd: Any) -> None:
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    rates = []
    options: Any = {"audit_seconds": 0, "audit_share": 0, "explain": False}
    with nanwatch.watch(policy="survive", dir=tmp_path / "run", **options) as session:
        for step in range(34):
            optimizer.zero_grad()
            (net(torch.ones(3, 2)).square().mean() + 2.0 ** max(0, step - 24)).backward()
            optimizer.step()
            rates += rates_of(optimizer)
    (alarm,) = session.warnings
    assert rates == [0.01] * alarm.step + [0.005] * (34 - alarm.step)
    said = f"at step {alarm.step} the learning rate was lowered from 0.01 to 0.005, before the overflow."
    assert capfd.readouterr().err.count(said) == 1


def test_no_rate_falls_below_its_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowering, "LOWEST", 0.4)
    one, other = optimizer_of(0.1, 0.01), optimizer_of(torch.tensor(0.5))
    rates = Lowering(0.5)
    assert rates.lower([one]) == [(0.1, 0.05)]
    assert [after for _, after in rates.lower([one, other])] == pytest.approx([0.04, 0.25])
    assert [after for _, after in rates.lower([one, other])] == pytest.approx([0.2])
    assert rates.lower([one, other]) == []
    assert rates_of(one) == pytest.approx([0.04, 0.004]) and rates_of(other) == pytest.approx([0.2])


def test_an_optimizer_with_the_id_of_another_begins_with_its_own_floor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lowering, "LOWEST", 0.4)
    rates, known = Lowering(0.5), optimizer_of(1.0)
    rates.lower([known])
    assert len(rates._lowest) == 1
    del known
    gc.collect()
    assert len(rates._lowest) == 0


def test_an_optimizer_with_the_id_of_another_has_made_no_update() -> None:
    updates: Any = Updates.__new__(Updates)
    old, new = optimizer_of(1.0), optimizer_of(1.0)
    updates.optimizers, updates._made = weakref.WeakSet([old]), {id(old): 3, id(new): 2}
    updates.made(old)
    updates.made(new)
    assert updates.active == [old] and new in updates.optimizers


def test_all_ranks_have_lowered(capfd: Any) -> None:
    optimizer = optimizer_of(0.1)
    watched = Watched(optimizer)
    ranks = together(watched)
    assert ranks.honour(3)
    ranks.settle(True)
    assert rates_of(optimizer) == [0.05] and watched.events == ["rate-lowered"]
    assert capfd.readouterr().err == (
        "nanwatch: at step 8 the learning rate was lowered from 0.1 to 0.05, as on all ranks: rank 3 has an "
        "early warning of an overflow.\n"
    )


@pytest.mark.parametrize("tells_why", [False, True])
def test_the_rank_that_was_warned_says_why(tells_why: bool, capfd: Any) -> None:
    watched = Watched(optimizer_of(0.1))
    ranks = together(watched, tells_why=tells_why)
    ranks.ask(ALARM)
    assert watched.lockstep.wish
    assert ranks.honour(None)
    ranks.settle(True)
    *why, lowered = capfd.readouterr().err.splitlines()
    assert lowered.endswith("step 8 the learning rate was lowered from 0.1 to 0.05, before the overflow.")
    assert why == ([ALARM.sentence()] if tells_why else [])


def test_where_one_rank_could_not_all_is_put_back_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    first, second = optimizer_of(0.1, torch.tensor(0.3)), optimizer_of(0.7)
    schedule = CosineAnnealingLR(second, 10, eta_min=0.01)
    before = (rates_of(first), rates_of(second), dict(second.param_groups[0]), schedule.state_dict())
    watched = Watched(first, second)
    ranks = together(watched)
    ranks.ask(ALARM)
    for fails in (False, True):
        if fails:  # on this rank, in the middle of it
            monkeypatch.setattr(second, "param_groups", [{"lr": "high"}, *second.param_groups])
            with pytest.raises(ValueError, match="high"):
                ranks.honour(None)
            monkeypatch.undo()
        else:
            assert ranks.honour(None) and rates_of(first) != before[0] and schedule.eta_min == 0.005
        ranks.settle(False)
        now = (rates_of(first), rates_of(second), dict(second.param_groups[0]), schedule.state_dict())
        assert str(now) == str(before)
    said = capfd.readouterr().err
    assert watched.events == [] and said.count("the learning rate stays as it is on all ranks") == 1
    watched.lockstep.wish = False
    ranks.ask(ALARM)
    assert not watched.lockstep.wish, "it is not tried again"


def test_nobody_is_asked_where_nobody_answers() -> None:
    watched = Watched(optimizer_of(0.1), groups=())
    together(watched).ask(ALARM)
    assert not watched.lockstep.wish


def test_who_asks_whom() -> None:
    """Alone a process lowers at once; with others it asks; and only for an overflow."""
    optimizer = optimizer_of(0.1)
    for policy, alone, rate, asks in (
        (nanwatch.Policy(lower_rate_on_warning=True), True, 0.05, False),
        (nanwatch.Policy(lower_rate_on_warning=True), False, 0.05, True),
        (nanwatch.Policy(), False, 0.05, False),
    ):
        watched: Any = Watched(optimizer)
        watched.lockstep.together = not alone
        precautions = Precautions(policy, None, 10)
        precautions.join_ranks(watched, tells_why=False)
        precautions.lower_after([Alarm("spike", 1, 7, "loss", 7, 1.0, 100.0, 2.0)], watched)
        assert not watched.lockstep.wish
        precautions.lower_after([ALARM], watched)
        assert (rates_of(optimizer), watched.lockstep.wish) == ([rate], asks)


def test_what_is_wished_for_before_a_way_back_is_forgotten() -> None:
    watched: Any = Watched(optimizer_of(0.1))
    precautions = Precautions(nanwatch.Policy(rollbacks=1, lower_rate_on_warning=True), None, 1)
    assert precautions.last_good is not None
    precautions.last_good.add(*watched.updates.active)
    assert precautions.last_good.step(3)
    watched.lockstep.wish = True
    precautions.roll_back(watched)
    assert not watched.lockstep.wish


def test_after_another_ranks_warning_a_rise_is_another_episode() -> None:
    def warned_at(lowered: int | None) -> list[int]:
        early = EarlyWarning()
        steps = []
        for step in range(90):
            if step == lowered:
                early.begin_anew(step)
            facts = StepFacts(step, 2.0 ** max(0, step - 60), 1.0, (0.1,))
            steps += [alarm.step for alarm in early.see(facts)]
        return steps

    assert warned_at(None) == [65]
    assert warned_at(64) == [68], "what has risen before does not count"
    assert warned_at(20) == [65]
