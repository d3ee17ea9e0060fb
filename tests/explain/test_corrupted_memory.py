"""A bit that was turned over is proved by the checksums, and a program that writes behind torch's counting is
never blamed on the memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nanwatch.records import Incident

IncidentOf = Callable[..., Incident]

FLIPPED = """
    import ctypes

    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    frozen = nn.Linear(6, 6).requires_grad_(False)
    optimizer = torch.optim.{optimizer}(model.parameters(), lr=1e-3)
    for step in range(9):
        x = torch.randn(16, 6) * 8
        loss = nn.functional.cross_entropy(model(frozen(x)), (x.sum(1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 5:
            word = ctypes.c_uint32.from_address({weight}.data_ptr() + 4 * 13)
            word.value ^= 1 << 30
"""


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize(
    ("weight", "name", "since", "place"),
    [("model[2].weight", "2.weight", 5, "[1, 5]"), ("frozen.weight", "weight", 4, "[2, 1]")],
    ids=["trained", "frozen"],
)
def test_a_bit_that_was_turned_over(
    incident_of: IncidentOf, optimizer: str, weight: str, name: str, since: int, place: str
) -> None:
    incident = incident_of(FLIPPED.format(optimizer=optimizer, weight=weight))
    assert incident.step == 6
    assert (incident.cause.id, incident.cause.certainty) == ("corrupted-memory", "proved")
    assert incident.cause.why.startswith(f"{name} is not what it was after step {since},")
    assert any(
        said.startswith(f"one bit was turned over: bit 30 at {place}") for said in incident.cause.evidence
    )
    assert "roll-back" in {remedy.id for remedy in incident.remedies if remedy.verified}


LATE = """
    import ctypes

    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(12):
        x = torch.randn(16, 6) * (100 if step == 9 else 0.1)
        loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step == 5:
            word = ctypes.c_uint32.from_address(model[2].weight.data_ptr() + 4 * 13)
            word.value ^= 1 << 30
"""


def test_a_bit_whose_harm_would_come_steps_later(incident_of: IncidentOf) -> None:
    """It is told of before the first update writes over it, while every value is finite."""
    incident = incident_of(LATE)
    assert (incident.step, incident.kind, incident.seen_in) == (6, "bit", "memory")
    assert (incident.cause.id, incident.cause.certainty) == ("corrupted-memory", "proved")
    assert incident.cause.why.startswith("2.weight is not what it was after step 5,")


CRITIC = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    teacher = nn.Linear(4, 4).requires_grad_(False)
    critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
    for step in range(12):
        real, fake = {real}, torch.randn(6, 4)
        loss = critic(fake).mean() - critic(real).mean()
        if step == 9:
            loss = loss * float("nan")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % {every} == 0:
            for p in critic.parameters():
                {write}
"""
AVERAGE = """
    import copy

    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(12):
        x = torch.randn(6, 4)
        loss = (model(x) - average(x) - 1).square().mean()
        if step == 9:
            loss = loss * float("nan")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % {every} == 0:
            for a, p in zip(average.parameters(), model.parameters()):
                {write}
"""
DRAWN, TAUGHT = "torch.randn(6, 4)", "teacher(torch.randn(6, 4))"
"""A call without gradients lets the tape forget what was before it."""
CLAMPED, SET = "p.data.clamp_(-0.01, 0.01)", "p.data[0] = 0.03"
MOVED = "a.data.mul_(0.9).add_(p.data, alpha=0.1)"
COPIED = "a.data.copy_(p.data)"
ONE_VALUE = "a.data.view(-1)[1] = 0.25"


@pytest.mark.parametrize(
    "program",
    [
        *[CRITIC.format(every=every, real=DRAWN, write=CLAMPED) for every in (1, 4)],
        *[CRITIC.format(every=1, real=TAUGHT, write=write) for write in (CLAMPED, SET)],
        *[AVERAGE.format(every=every, write=MOVED) for every in (1, 5)],
        *[AVERAGE.format(every=5, write=write) for write in (COPIED, ONE_VALUE)],
    ],
    ids=[
        "clamped",
        "clamped at times",
        "clamped, not on tape",
        "set, not on tape",
        "averaged",
        "averaged at times",
        "copied at times",
        "one value",
    ],
)
def test_writes_through_data_are_no_corruption(incident_of: IncidentOf, program: str) -> None:
    """Also those of steps that are no longer on record."""
    incident = incident_of(program)
    assert incident.step == 9
    assert incident.cause.id != "corrupted-memory"
    assert "corrupted-memory" not in {cause.id for cause in incident.others}
