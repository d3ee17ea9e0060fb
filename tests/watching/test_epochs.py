"""Which pass over the data a step belongs to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

import nanwatch

Watch = Callable[..., nanwatch.Session]
EXPECTED = [1, 1, 1, 2, 2, 2, 3, 3, 3]


def recorded(tmp_path: Path) -> list[dict[str, Any]]:
    lines = (tmp_path / "run" / "steps-rank0.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def rows(count: int) -> TensorDataset:
    return TensorDataset(torch.randn(count, 4, generator=torch.Generator().manual_seed(count)))


class Training:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, x: torch.Tensor) -> None:
        loss = self.model(x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def validate(self, loader: Any) -> None:
        with torch.no_grad():
            for (x,) in loader:
                self.model(x)


def one_loader() -> tuple[Callable[[], Any], Callable[[], Any]]:
    loader = DataLoader(rows(12), batch_size=4, shuffle=True)
    return lambda: loader, lambda: ()


def two_loaders() -> tuple[Callable[[], Any], Callable[[], Any]]:
    loader, other = DataLoader(rows(12), batch_size=4), DataLoader(rows(8), batch_size=4)
    return lambda: loader, lambda: other


def two_loaders_of_the_same_data() -> tuple[Callable[[], Any], Callable[[], Any]]:
    data = rows(16)
    loader = DataLoader(data, batch_size=4, sampler=SubsetRandomSampler(range(12)))
    other = DataLoader(data, batch_size=4, sampler=SubsetRandomSampler(range(12, 16)))
    return lambda: loader, lambda: other


def a_new_loader_each_time() -> tuple[Callable[[], Any], Callable[[], Any]]:
    data = rows(12)
    return lambda: DataLoader(data, batch_size=4), lambda: ()


@pytest.mark.parametrize(
    "loaders", [one_loader, two_loaders, two_loaders_of_the_same_data, a_new_loader_each_time]
)
def test_epochs_are_counted(watch: Watch, tmp_path: Path, loaders: Callable[[], Any]) -> None:
    """With a look at the validation data before the first epoch and after each."""
    training, validation = loaders()
    with watch():
        run = Training()
        run.validate(validation())
        for _ in range(3):
            for (x,) in training():
                run.step(x)
            run.validate(validation())
    steps = recorded(tmp_path)
    assert [line["epoch"] for line in steps] == EXPECTED


def test_a_validation_in_the_middle_of_an_epoch(watch: Watch, tmp_path: Path) -> None:
    training, validation = two_loaders_of_the_same_data()
    with watch():
        run = Training()
        for _ in range(3):
            for i, (x,) in enumerate(training()):
                run.step(x)
                if i == 1:
                    run.validate(validation())
    assert [line["epoch"] for line in recorded(tmp_path)] == EXPECTED


def test_a_program_without_a_loader_has_no_epochs(watch: Watch, tmp_path: Path) -> None:
    def batches() -> Iterator[torch.Tensor]:
        for _ in range(3):
            yield torch.randn(4, 4)

    with watch():
        run = Training()
        for x in batches():
            run.step(x)
    steps = recorded(tmp_path)
    assert len(steps) == 3
    assert all("epoch" not in line for line in steps)


def test_workers_that_stay(watch: Watch, tmp_path: Path) -> None:
    """One iterator, begun anew for each epoch."""
    loader = DataLoader(rows(12), batch_size=4, num_workers=1, persistent_workers=True)
    with watch():
        run = Training()
        for _ in range(3):
            for (x,) in loader:
                run.step(x)
    assert [line["epoch"] for line in recorded(tmp_path)] == EXPECTED
