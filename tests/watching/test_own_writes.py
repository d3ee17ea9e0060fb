"""A model that writes a bad value into its own weights is said to: they are not untouched."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import nanwatch
from nanwatch.messages import say


class Scaled(nn.Module):
    """Sets its scale from the first batch."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.ones(2))
        self.kept = kept

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spread = x[:, :2].std(dim=0)
        if self.kept:
            with torch.no_grad():
                self.scale.copy_(1 / spread)
            return self.linear(x) * self.scale * 0
        return self.linear(x) * self.scale / spread


@pytest.mark.parametrize("kept", [True, False])
def test_what_a_model_wrote_into_its_weights_is_said(tmp_path: Path, kept: bool) -> None:
    model = Scaled(kept)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(nanwatch.NonFiniteError) as caught, nanwatch.watch(model, optimizer, dir=tmp_path):
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
    assert (say("watch.wrote_its_own_weights", name="scale") in caught.value.incident.notes) is kept
