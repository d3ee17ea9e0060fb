"""A GradScaler leaves the unscaling, and the decision to make the update, to a fused optimizer: the good
micro-batches of a group are kept all the same, and a bad gradient is an incident."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "watching"))

from small_training import assert_same, state_of

import nanwatch

PARTS, GROUPS = 4, 7
QUIET: dict[str, Any] = {"explain": False, "audit_seconds": 0.0, "audit_share": 0.0}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "Adam": lambda weights: torch.optim.Adam(weights, lr=0.01, fused=True),
    "AdamW": lambda weights: torch.optim.AdamW(weights, lr=0.01, fused=True),
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.9, fused=True),
    "Adagrad": lambda weights: torch.optim.Adagrad(weights, lr=0.01, fused=True),
    "SGD, not fused": lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.9),
}
Where = Collection[tuple[int, int]]
"""(group, micro-batch) of each."""


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))


def spoiled(loss: torch.Tensor, fault: str) -> torch.Tensor:
    """ "loss": NaN with a finite gradient; "backward": the other way round; "both"."""
    if fault == "backward":
        return loss + torch.sqrt(0 * loss)
    bad = torch.tensor(float("nan"))
    return loss + bad if fault == "loss" else loss * bad


def train(
    kind: str = "Adam",
    fault: str = "both",
    ending: str = "left to the optimizer",
    bad: Where = (),
    left_out: Where = (),
    scale: float = 2.0**8,
    dtype: torch.dtype = torch.bfloat16,
) -> list[Any]:
    """All that it leaves behind. `ending`: how the step is made once the gradients are there."""
    model = network()
    optimizer = OPTIMIZERS[kind](model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
    for group in range(GROUPS):
        parts = [part for part in range(PARTS) if (group, part) not in left_out]
        if not parts:
            continue
        optimizer.zero_grad()
        for part in parts:
            x = torch.randn(6, 4, generator=torch.Generator().manual_seed(PARTS * group + part))
            with torch.autocast("cpu", dtype=dtype):
                loss = (model(x).float() - 1).square().mean() / PARTS
            scaler.scale(spoiled(loss, fault) if (group, part) in bad else loss).backward()
        if ending == "unscaled and clipped":
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        elif ending == "clipped with its scale":
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
    return [*state_of(model, optimizer, schedule, scaler), torch.get_rng_state()]


def watched(folder: Path, **how: Any) -> tuple[list[Any], nanwatch.Session]:
    with nanwatch.watch(policy="skip", dir=folder, **QUIET) as session:
        return train(**how), session


def events_of(session: nanwatch.Session, name: str) -> list[int]:
    return [facts.step for facts in session.history if name in facts.events]


@pytest.mark.parametrize(
    "ending", ["left to the optimizer", "unscaled and clipped", "clipped with its scale"]
)
@pytest.mark.parametrize("fault", ["loss", "backward"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_as_if_the_bad_micro_batch_had_never_come(kind: str, fault: str, ending: str, tmp_path: Path) -> None:
    """The first of its group, one in the middle, the last."""
    where = [(1, 0), (3, 2), (5, PARTS - 1)]
    found, session = watched(tmp_path, kind=kind, fault=fault, ending=ending, bad=where)
    assert_same(found, train(kind, fault, ending, left_out=where))
    assert [(i.step, i.action) for i in session.incidents] == [(group, "skipped") for group, _ in where]
    for (_, part), incident in zip(where, session.incidents, strict=True):
        assert any(f"micro-batch {part} of {PARTS}" in note for note in incident.notes), incident.notes
    assert events_of(session, "skip-part") == [1, 3, 5]
    assert events_of(session, "skip") == events_of(session, "scaler-skip") == []
    assert [facts.step for facts in session.history] == list(range(GROUPS))


@pytest.mark.parametrize("fault", ["both", "backward"])
def test_bad_groups_in_a_row_and_several_bad_ones_in_a_group(fault: str, tmp_path: Path) -> None:
    where = [(1, 0), (2, 1), (2, 3), (3, 2), (5, 0), (5, 1), (5, 2)]
    found, session = watched(tmp_path, fault=fault, bad=where)
    assert_same(found, train(fault=fault, left_out=where))
    assert [incident.step for incident in session.incidents] == [1, 2, 3, 5]
    assert events_of(session, "skip-part") == [1, 2, 3, 5]


@pytest.mark.parametrize("ending", ["left to the optimizer", "unscaled and clipped"])
@pytest.mark.parametrize("fault", ["loss", "backward"])
def test_where_all_are_bad_the_group_is_left_out(fault: str, ending: str, tmp_path: Path) -> None:
    where = [(3, part) for part in range(PARTS)]
    found, session = watched(tmp_path, fault=fault, ending=ending, bad=where)
    assert_same(found, train(fault=fault, ending=ending, left_out=where))
    assert events_of(session, "skip") == [3]


@pytest.mark.parametrize("mode", ["host", "device"])
@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_the_scalers_search_is_no_incident(policy: str, mode: str, tmp_path: Path) -> None:
    how: dict[str, Any] = {"scale": 2.0**20, "dtype": torch.float16}
    with nanwatch.watch(policy=policy, mode=mode, dir=tmp_path, **QUIET) as session:
        found = train(**how)
    expected = train(**how)
    assert 2.0**12 < expected[3]["scale"] < 2.0**20, "it has searched and found"
    assert_same(found, expected)
    assert session.incidents == []
    skipped = events_of(session, "scaler-skip")
    assert skipped == list(range(len(skipped))) and 3 <= len(skipped) < GROUPS
    fell = [facts.facts.get("scale_fell") for facts in session.history]
    assert fell == [n + 1 if n in skipped and n >= 2 else None for n in range(GROUPS)]


@pytest.mark.parametrize("mode", ["host", "device"])
def test_a_bad_gradient_stops_the_program(mode: str, tmp_path: Path) -> None:
    with (
        pytest.raises(nanwatch.NonFiniteError) as caught,
        nanwatch.watch(mode=mode, dir=tmp_path, **QUIET),
    ):
        train(fault="backward", bad=[(3, 1)])
    assert caught.value.incident is not None
    assert caught.value.incident.phase == "backward" and caught.value.incident.step == 3


def test_a_program_that_goes_on_after_the_error_has_its_scale_once(tmp_path: Path) -> None:
    model = network()
    optimizer = OPTIMIZERS["Adam"](model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    with nanwatch.watch(dir=tmp_path, **QUIET):
        loss = spoiled(model(torch.randn(6, 4)).square().mean(), "backward")
        scaler.scale(loss).backward()
        with pytest.raises(nanwatch.NonFiniteError):
            scaler.step(optimizer)
    assert not {"grad_scale", "found_inf"} & set(vars(optimizer))
