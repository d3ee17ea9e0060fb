"""A loss that the program notes down after the step belongs to the next tape, but not into its replay."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import nanwatch


@pytest.mark.parametrize("mode", ["host", "device"])
def test_the_step_before_is_not_replayed_for_its_noted_loss(mode: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5, fused=True)
    total = torch.zeros(())
    watch = nanwatch.watch(model, optimizer, mode=mode, dir=tmp_path, audit_seconds=0.0, audit_share=0.0)
    with pytest.raises(nanwatch.NonFiniteError) as caught, watch:
        for step in range(6):
            x = torch.randn(5, 4)
            if step == 3:
                x[2, 1] = float("nan")
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
    incident = caught.value.incident
    assert (incident.step, incident.phase, incident.birth.samples) == (3, "data", (2,))
    assert incident.located_by == "replay"
    assert 'x[2, 1] = float("nan")' in incident.birth.code
    assert incident.cause.id == "bad-input"
