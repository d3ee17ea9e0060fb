"""The state of NumPy's generator: read by its words, put back only where something was drawn."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch

import nanwatch


def test_a_state_of_numpy_that_is_set_back_is_not_taken_for_drawn(tmp_path: Path) -> None:
    """Another model has drawn in between. What NumPy has in store is no part of the words that are compared,
    and must stay through a skipped step."""

    class Draws(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            np.random.rand()
            return super().forward(x)

    def train(model: torch.nn.Module, factor: float = 1.0) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        (model(torch.ones(4, 3)).mean() * factor).backward()
        optimizer.step()
        optimizer.zero_grad()

    draws, plain = Draws(3, 1), torch.nn.Linear(3, 1)
    np.random.seed(0)
    np.random.randn()  # a second one is in store
    state = np.random.get_state()
    expected = np.random.randn()
    np.random.set_state(state)
    with nanwatch.watch(policy="skip", dir=tmp_path / "run") as session:
        train(plain)
        np.random.set_state(state)
        train(draws)
        np.random.set_state(state)
        train(plain, math.nan)
        recorder = session.watcher.recorder
        assert recorder.known_of(draws).draws_from_numpy
        assert not recorder.known_of(plain).draws_from_numpy
    assert len(session.incidents) == 1
    assert np.random.randn() == expected
