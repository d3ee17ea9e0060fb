"""What the steps before say beside the diagnosis is among the notes of the incident."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nanwatch.explain.timeline import sentences
from nanwatch.records import Incident, StepFacts

IncidentOf = Callable[..., Incident]

PROGRAM = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = {model}
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(6):
        loss = (model(torch.randn(6, 4)) - 1).square().mean()
        if step == {bad}:
            loss = loss * float("nan")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
DEAD = "nn.Sequential(nn.Linear(4, 8), nn.Hardtanh(5.0, 6.0), nn.Linear(8, 1))"
DEEP = "nn.Sequential(*[l for _ in range(16) for l in (nn.Linear(4, 4), nn.Sigmoid())], nn.Linear(4, 1))"
HEALTHY = "nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))"


@pytest.mark.parametrize(
    ("model", "bad", "said"),
    [
        (DEAD, 5, "No gradient reached 0.weight in the last 5 audited steps (since step 0)"),
        (DEEP, 5, "The gradients of 0.weight, 10.weight, 12.weight, 14.weight were next to nothing"),
        (DEAD, 2, None),
        (HEALTHY, 5, None),
    ],
    ids=["dead", "vanishing", "too few steps", "healthy"],
)
def test_layers_that_learn_nothing(incident_of: IncidentOf, model: str, bad: int, said: str | None) -> None:
    incident = incident_of(PROGRAM.format(model=model, bad=bad), mode="host", audit_seconds=60)
    if said is None:
        assert incident.notes == ()
    else:
        assert len(incident.notes) == 1
        assert incident.notes[0].startswith(said)


def test_a_loss_scale_that_fell(incident_of: IncidentOf) -> None:
    source = """
        import torch
        from torch import nn

        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 127)
        for step in range(10):
            loss = (model(torch.ones(6, 4)) * 3).square().mean()
            if step == 9:
                loss = loss * float("nan")
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    """
    incident = incident_of(source)
    (note,) = incident.notes
    assert note.startswith("The loss scale fell ") and " times in a row, up to step " in note


def audited(step: int, *dead: str) -> StepFacts:
    return StepFacts(step, facts={"layers": {}, **({"dead": list(dead)} if dead else {})})


def test_only_layers_that_were_dead_to_the_end_are_named() -> None:
    history = [audited(0, "a", "b"), audited(1, "a", "b"), audited(2, "a"), audited(3, "a")]
    (said,) = sentences(history)
    assert said.startswith("No gradient reached a in the last 4 audited steps (since step 0)")
    assert list(sentences([*history, audited(4)])) == []
    assert list(sentences([])) == []
