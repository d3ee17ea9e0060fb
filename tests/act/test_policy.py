"""Policies: what is decided for one bad step after the other, and what it does to a training."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "watching"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))

from nursery import Nursery
from small_training import assert_same, state_of
from workshop import Workshop

import nanwatch
from nanwatch.act.lowering import scale_rates
from nanwatch.act.policy import NAMED, Decisions, policy_of

QUICK = {"explain": False, "audit_seconds": 0.0, "audit_share": 0.0, "early_warning": False}


def decisions(policy: nanwatch.Policy, bad: list[int], damaged: tuple[int, ...] = ()) -> list[str]:
    deciding = Decisions(policy)
    return [deciding.decide(step, True, True, step in damaged) for step in bad]


def test_skip_then_go_back_then_raise() -> None:
    policy = nanwatch.Policy(skip_in_a_row=2, skip_per_thousand=4, rollbacks=2)
    assert decisions(policy, [5, 6, 7, 8, 9, 10, 11, 12, 13]) == [
        *["skip", "skip", "rollback"] * 2,
        *["skip", "skip", "raise"],
    ]
    apart = [0, 10, 20, 30, 40, 1039, 1040]
    assert decisions(policy, apart) == ["skip"] * 4 + ["rollback", "skip", "skip"], "four in a thousand"
    assert decisions(policy, [3, 900, 1500, 1899, 1900, 1901]) == ["skip"] * 5 + ["rollback"]


def test_what_a_skip_cannot_mend_is_rolled_back_at_once() -> None:
    policy = nanwatch.Policy(skip_in_a_row=3, rollbacks=1)
    assert decisions(policy, [5, 6], damaged=(5, 6)) == ["rollback", "raise"]
    assert decisions(policy_of("skip"), [5], damaged=(5,)) == ["skip"], (
        "there is no way back: nothing to gain"
    )
    made = Decisions(policy)
    assert made.decide(1, can_skip=False, can_roll_back=False) == "raise"
    assert Decisions(policy_of("skip")).decide(1, can_skip=False, can_roll_back=False) == "observe"


@given(st.lists(st.integers(0, 3000), unique=True).map(sorted), st.integers(0, 4), st.integers(0, 6))
def test_limits_hold_for_any_sequence(bad: list[int], in_a_row: int, per_thousand: int) -> None:
    decided = decisions(nanwatch.Policy(in_a_row, per_thousand), bad)
    skipped = [step for step, what in zip(bad, decided, strict=True) if what == "skip"]
    for step in skipped:
        assert sum(step - 1000 < other <= step for other in skipped) <= per_thousand
        assert sum(step - in_a_row <= other <= step for other in skipped) <= in_a_row
    assert set(decided) <= {"skip", "raise"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"skip_in_a_row": -1},
        {"rollbacks": True},
        {"rate_factor": 1.5},
        {"rate_factor": 0},
        {"skip_per_thousand": "ten"},
        {"lower_rate_on_warning": "yes"},
    ],
)
def test_impossible_values(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(nanwatch.NanwatchError, match=f"Policy: {name} is {value!r}; .* was expected"):
        nanwatch.Policy(**wrong)


def test_named_ones_and_changes() -> None:
    assert policy_of("survive", rollbacks=1).rollbacks == 1
    assert policy_of(nanwatch.Policy(rollbacks=2)) == nanwatch.Policy(rollbacks=2)
    assert NAMED["skip"].skip_in_a_row == math.inf and not NAMED["zero"].holds_back
    with pytest.raises(nanwatch.NanwatchError, match="unknown policy sometimes"):
        policy_of("sometimes")


class Training:
    """A network with everything that a rollback has to put back."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.05, total_steps=60)
        self.states: dict[int, list[Any]] = {}

    def run(self, steps: range, bad: tuple[int, ...] = ()) -> None:
        for step in steps:
            x = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
            if step in bad:
                x[0] = float("nan")
            self.optimizer.zero_grad()
            (self.model(x) - 1).square().mean().backward()
            self.optimizer.step()
            self.states[step] = self.state()
            self.schedule.step()

    def state(self) -> list[Any]:
        return [*state_of(self.model, self.optimizer, self.schedule), torch.get_rng_state()]


def test_roll_back_puts_everything_back(tmp_path: Path) -> None:
    training = Training()
    options: Any = {**QUICK, "snapshot_every": 5}
    with nanwatch.watch(policy="rollback", dir=tmp_path / "run", **options) as session:
        training.run(range(13), bad=(12,))
    (incident,) = session.incidents
    assert (incident.step, incident.action) == (12, "rolled-back")
    assert session.decisions.rolled_back == 1
    assert_same(training.states[12], training.states[10])
    again = Training()
    again.run(range(11))
    assert_same(training.states[12], again.states[10])


def test_roll_back_lowers_the_rate_and_the_schedule_goes_on_from_there(tmp_path: Path, capfd: Any) -> None:
    training = Training()
    policy = nanwatch.Policy(rollbacks=2, rate_factor=0.5)
    options: Any = {**QUICK, "snapshot_every": 5}
    with nanwatch.watch(policy=policy, dir=tmp_path / "run", **options):
        training.run(range(9), bad=(7, 8))
        plain = Training()
        lowered = training.optimizer.param_groups[0]
    plain.run(range(1))  # the second time the way back leads further
    was = plain.optimizer.param_groups[0]  # the schedule has moved on since the update, as it does in a step
    for name in ("lr", "max_lr", "initial_lr", "min_lr"):
        assert lowered[name] == pytest.approx(was[name] * 0.25, rel=1e-12), name
    said = [line for line in capfd.readouterr().err.splitlines() if "went back to the state" in line]
    assert [line.rsplit("now ")[1].split()[0] for line in said] == ["0.5", "0.25"]
    training.schedule.step()
    assert lowered["lr"] < was["max_lr"] * 0.25


def test_after_the_last_rollback_the_program_is_stopped(tmp_path: Path) -> None:
    training = Training()
    options: Any = {**QUICK, "snapshot_every": 2}
    policy = nanwatch.Policy(skip_in_a_row=1, rollbacks=1)
    with (
        pytest.raises(nanwatch.NonFiniteError),
        nanwatch.watch(policy=policy, dir=tmp_path / "run", **options),
    ):
        training.run(range(12), bad=(4, 5, 6, 7))
    written = sorted((tmp_path / "run/incidents").glob("*/incident.json"))
    actions = [json.loads(file.read_text())["action"] for file in written]
    assert actions == ["skipped", "rolled-back", "skipped", "raised"]


@pytest.mark.parametrize(
    "policy", ["survive", nanwatch.Policy(skip_in_a_row=12), nanwatch.Policy(4, rollbacks=3, rate_factor=0.5)]
)
def test_what_stays_bad_is_stopped_however_many_incidents_came_before(
    tmp_path: Path, policy: str | nanwatch.Policy
) -> None:
    """Only the first ten are located; the last one is not only counted."""
    training = Training()
    options: Any = {**QUICK, "snapshot_every": 2}
    with (
        pytest.raises(nanwatch.NonFiniteError) as caught,
        nanwatch.watch(policy=policy, dir=tmp_path / "run", **options) as session,
    ):
        training.run(range(60), bad=tuple(range(6, 60)))
    assert all(bool(p.isfinite().all()) for p in training.model.parameters())
    assert session.decisions.skipped + session.decisions.rolled_back > 10
    assert caught.value.incident.action == "raised"
    assert session.stopped_by_incident


def test_with_nothing_to_go_back_to_it_stops_at_once(tmp_path: Path) -> None:
    training = Training()
    with (
        pytest.raises(nanwatch.NonFiniteError),
        nanwatch.watch(policy="rollback", dir=tmp_path / "r", **QUICK),
    ):
        training.run(range(3), bad=(0,))
    assert all(bool(p.isfinite().all()) for p in training.model.parameters())


def test_zero_says_that_it_is_for_debugging(tmp_path: Path, capfd: Any) -> None:
    training = Training()
    with nanwatch.watch(policy="zero", dir=tmp_path / "run", **QUICK) as session:
        training.run(range(5), bad=(3,))
        out = nn.Linear(2, 2).requires_grad_(False)(torch.tensor([[1.0, float("nan")]]))
    assert [i.action for i in session.incidents] == ["zeroed", "zeroed"]
    said = " ".join(line for line in capfd.readouterr().err.splitlines() if "│" not in line)
    assert said.count("replaced by 0: for debugging only") == 2
    assert all(bool(p.isfinite().all()) for p in training.model.parameters())
    assert bool(out.isfinite().all())


def test_rates_of_a_schedule() -> None:
    weight = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=torch.tensor(0.1))
    scale_rates(optimizer, 0.5)
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.05)
    groups = [{"params": [nn.Parameter(torch.zeros(2))]} for _ in range(2)]
    shared = torch.optim.SGD(groups, lr=torch.tensor(0.1))
    scale_rates(shared, 0.5)
    assert [float(group["lr"]) for group in shared.param_groups] == pytest.approx([0.05, 0.05])
    plain = torch.optim.SGD([weight], lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(plain, lambda step: 1 / (1 + step))
    scale_rates(plain, 0.1)
    plain.step()
    schedule.step()
    assert plain.param_groups[0]["lr"] == pytest.approx(0.1 * 0.1 / 2)


def test_from_the_command_line(tmp_path: Path, nursery: Nursery) -> None:
    workshop = Workshop(tmp_path, nursery)
    workshop.write(
        "train.py",
        """
        import torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(12):
            x = torch.full((2, 2), float("nan") if step in (5, 6, 7) else 1.0)
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        print(optimizer.param_groups[0]["lr"])
        """,
    )
    done = workshop.nanwatch(
        *["run", "--dir", "run", "--no-explain", "--policy", "survive", "--skip-in-a-row", "2"],
        *["--rollbacks=1", "--rate-factor", "0.1", "--snapshot-every", "3", "train.py"],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0.010000000000000002\n"
    actions = [
        json.loads(f.read_text())["action"] for f in sorted((tmp_path / "run/incidents").glob("*/*.json"))
    ]
    assert actions == ["skipped", "skipped", "rolled-back"]
    for wrong in (
        ["--rollbacks", "1.5"],
        ["--snapshot-every", "0"],
        ["--rate-factor", "2"],
        ["--policy", "so"],
    ):
        bad = workshop.nanwatch("run", *wrong, "train.py")
        assert bad.returncode == 2 and bad.stderr.count("\n") == 1, bad.stderr


def test_a_statistic_that_went_bad_unseen_is_found_when_a_snapshot_is_due(tmp_path: Path) -> None:
    """In training mode BatchNorm does not read its running statistics: no loss shows that they are NaN."""
    training = Training()
    options: Any = {**QUICK, "snapshot_every": 4}
    with nanwatch.watch(policy="rollback", dir=tmp_path / "run", **options) as session:
        training.run(range(6))
        training.model[1].running_var.fill_(float("nan"))
        training.run(range(6, 14))
    assert [incident.action for incident in session.incidents] == ["rolled-back"]
    assert all(bool(t.isfinite().all()) for t in training.model.state_dict().values())


def test_a_state_that_leads_nowhere_is_left_behind(tmp_path: Path, capfd: Any) -> None:
    """Going back to the newest state gives no good step: the next way back leads to the one before."""
    training = Training()
    options: Any = {**QUICK, "snapshot_every": 3}
    with nanwatch.watch(policy=nanwatch.Policy(rollbacks=2), dir=tmp_path / "run", **options):
        training.run(range(10), bad=(8, 9))
    said = [line for line in capfd.readouterr().err.splitlines() if "went back to the state" in line]
    assert [int(line.split("after step ")[1].split(".")[0]) for line in said] == [6, 3]
    assert all(line.endswith("The learning rate stays the program's.") for line in said)


ALWAYS_BAD = """
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for step in range(14):
        loss = (model(torch.ones(1, 2)) - 1e6).log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            [p.nan_to_num_() for p in model.parameters()]
"""


def test_steps_that_are_only_told_of_are_counted(tmp_path: Path, nursery: Nursery) -> None:
    workshop = Workshop(tmp_path / "work", nursery)
    workshop.write("bad.py", ALWAYS_BAD)
    done = workshop.watched("--policy", "observe", "--no-explain", "bad.py")
    assert len(list((workshop.runs / "incidents").iterdir())) == 10
    assert done.stderr.endswith(
        f"nanwatch: 14 bad steps in this run were left to the program; the first 10 are in {workshop.runs}, "
        "the others were only counted\n"
    )


def test_a_policy_that_has_come_to_its_end_says_so(tmp_path: Path, nursery: Nursery) -> None:
    workshop = Workshop(tmp_path / "work", nursery)
    workshop.write("bad.py", ALWAYS_BAD)
    options = ["--policy", "skip", "--skip-in-a-row", "2", "--no-explain"]
    done = workshop.watched(*options, "bad.py")
    assert done.returncode == 3
    *skipped, last = [
        json.loads(path.read_text())["notes"]
        for path in sorted((workshop.runs / "incidents").glob("*/incident.json"))
    ]
    ended = "The policy leaves nothing but to stop here: it has skipped 2 and rolled back 0 times before."
    assert ended in last and len(skipped) == 2 and not any(ended in notes for notes in skipped)
