"""What was not finite before the first update, and that nobody reads, is no damage; what comes to it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nanwatch


class Table(nn.Module):
    """Its last row is a trap, and its bank is filled as it goes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rows = nn.Parameter(torch.randn(6, 3))
        self.register_buffer("bank", torch.full((8, 3), torch.nan))
        self.rows.data[5] = torch.nan
        self.calls = 0

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        self.bank[self.calls] = self.rows.detach()[index].mean(0)
        self.calls += 1
        return self.rows[index]


def training(spoil: Any = None, save_as: Path | None = None) -> None:
    model = Table()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(6):
        optimizer.zero_grad()
        model(torch.randint(0, 5, (4,))).square().mean().backward()
        optimizer.step()
        if spoil is not None and step == 4:
            spoil(model)
    if save_as is not None:
        torch.save(model.state_dict(), save_as)


@pytest.mark.parametrize("policy", ["raise", "survive"])
@pytest.mark.parametrize("audit", [{}, {"audit_seconds": 0.0, "audit_share": 0.0}])
def test_what_was_there_before_is_left_alone(policy: str, audit: dict[str, Any], tmp_path: Path) -> None:
    options: dict[str, Any] = {"policy": policy, "snapshot_every": 2, "explain": False, **audit}
    with nanwatch.watch(dir=tmp_path / "run", **options) as session:
        training(save_as=tmp_path / "state.pt")
    assert not session.incidents
    assert (tmp_path / "state.pt").exists()


def spoil_a_good_row(model: Table) -> None:
    model.rows.data[3] = torch.nan


def test_another_row_is_found_when_it_is_saved(tmp_path: Path) -> None:
    options: dict[str, Any] = {"policy": "observe", "explain": False}
    with nanwatch.watch(dir=tmp_path / "run", **options) as session:
        torch.manual_seed(3)
        training(spoil_a_good_row, save_as=tmp_path / "state.pt")
    assert session.incidents


def test_a_zero_divided_by_zero_in_the_update_is_found_at_the_end(tmp_path: Path) -> None:
    """Adam without its epsilon, where the gradient is 0: those values were good before."""
    with (
        pytest.raises(nanwatch.NonFiniteError),
        nanwatch.watch(dir=tmp_path / "run", explain=False, audit_seconds=0.0, audit_share=0.0),
    ):
        model = Table()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, eps=0.0)
        model(torch.tensor([0, 1])).square().mean().backward()
        optimizer.step()
