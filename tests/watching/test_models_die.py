"""A model that the program has let go of is not held by the watch: the next one needs its memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import nanwatch

Watch = Callable[..., nanwatch.Session]
AUDITS = [{}, {"audit_seconds": 0.0, "audit_share": 0.0}]


def trained(steps: int = 4, fused: bool = False) -> weakref.ref[nn.Module]:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.MSELoss()(model(torch.randn(4, 8)), torch.zeros(4, 1)).backward()
        optimizer.step()
    return weakref.ref(model)


def used(calls: int) -> weakref.ref[nn.Module]:
    model = nn.Linear(8, 8).eval()
    with torch.no_grad():
        for _ in range(calls):
            model(torch.randn(2, 8))
    return weakref.ref(model)


@pytest.mark.parametrize("audit", AUDITS)
@pytest.mark.parametrize("mode", ["host", "device"])
def test_one_that_was_trained(watch: Watch, mode: str, audit: dict[str, Any]) -> None:
    watch(mode=mode, **audit)
    reference = trained(fused=mode == "device")
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("audit", AUDITS)
@pytest.mark.parametrize("calls", [1, 5])
@pytest.mark.parametrize("after_a_training", [False, True])
def test_one_that_was_only_used(
    watch: Watch, audit: dict[str, Any], calls: int, after_a_training: bool
) -> None:
    session = watch(**audit)
    if after_a_training:
        trained()
    reference = used(calls)
    gc.collect()
    assert reference() is None
    assert not session.watcher.shield.broken


def test_a_teacher_that_is_gone_when_the_step_goes_bad(watch: Watch) -> None:
    """What it returned is on record."""
    torch.manual_seed(0)
    watch(policy="raise", audit_seconds=0.0, audit_share=0.0)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(nanwatch.NonFiniteError) as caught:
        for step in range(3):
            x = torch.randn(4, 8)
            with torch.no_grad():
                teacher = nn.Linear(8, 8)
                wanted = teacher(x)
                del teacher
            optimizer.zero_grad()
            distance = (model(x) - wanted).square()
            loss = torch.log(distance * (0 if step == 2 else 1)).mean()
            loss.backward()
            optimizer.step()
    incident = caught.value.incident
    assert (incident.step, incident.birth.op) == (2, "aten.log.default")
    assert incident.cause.certainty == "proved"
