"""Large buffers of whole numbers: not copied to learn whether a model changes them, yet it is learned."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import nanwatch

Watch = Callable[..., nanwatch.Session]


class Quantised(nn.Module):
    def __init__(self, counts: bool) -> None:
        super().__init__()
        self.counts = counts
        self.layer = nn.Linear(4, 4)
        self.register_buffer("weight", torch.ones(2**10, 2**11, dtype=torch.int8))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.counts:
            self.weight[0] += 1
        out: torch.Tensor = self.layer(x)
        return out


def names_copied(session: nanwatch.Session, model: nn.Module) -> list[set[str]]:
    """At each of two calls."""
    found = []
    for _ in range(2):
        model(torch.ones(2, 4))
        entry = session.watcher.recorder.tape.entries[-1]
        found.append({name for _, name, _ in entry.buffers})
    return found


def test_what_no_call_changes_is_never_copied(watch: Watch) -> None:
    model = Quantised(counts=False)
    assert names_copied(watch(model), model) == [{"calls"}, {"calls"}]


def test_what_a_call_changes_is_copied_from_the_second_one_on(watch: Watch) -> None:
    model = Quantised(counts=True)
    assert names_copied(watch(model), model) == [{"calls"}, {"calls", "weight"}]
