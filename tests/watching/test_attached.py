"""Weights that a module holds without having registered them, in memory that came from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory

import pytest
import torch
from torch import nn

import nanwatch
from nanwatch.tensors.shared_mapping import is_shared_mapping

Watch = Callable[..., nanwatch.Session]


@dataclass
class Tables:
    up: list[torch.Tensor]


class Lookup(nn.Module):
    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self.tables = tables

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.tables.up[1]


def test_it_is_a_weight_with_a_name(watch: Watch) -> None:
    watch()
    bytes_of = bytearray(b"\xff" * 64)
    good = torch.ones(4, 4)
    attached = torch.frombuffer(bytes_of, dtype=torch.float32).view(4, 4)
    model = nn.Sequential(nn.Linear(4, 4), Lookup(Tables([good, attached])))
    with torch.no_grad(), pytest.raises(nanwatch.NonFiniteError) as stopped:
        model(torch.ones(2, 4))
    incident = stopped.value.incident
    assert (incident.phase, incident.birth.op, incident.birth.module) == ("weights", None, "1")
    assert incident.birth.outputs[0].name == "1.tables.up.1"
    assert "torch.frombuffer(" in incident.birth.code
    assert (incident.cause.id, incident.cause.certainty) == ("bad-weights", "likely")
    assert any("0xffffffff" in said for said in incident.cause.evidence)


def test_what_the_model_keeps_for_itself_is_no_weight(watch: Watch) -> None:
    """A cache that a bad input has spoiled is not to blame."""

    class Keeps(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.cache = x + 1
            return self.cache

    watch()
    with torch.no_grad(), pytest.raises(nanwatch.NonFiniteError) as stopped:
        Keeps()(torch.full((2, 2), float("nan")))
    assert stopped.value.incident.phase == "data"


def test_memory_that_others_see_is_told_from_private_memory() -> None:
    segment = SharedMemory(create=True, size=64)
    try:
        shared = torch.frombuffer(segment.buf, dtype=torch.float32)
        assert is_shared_mapping(shared[3:]) and not is_shared_mapping(torch.ones(16))
        del shared
    finally:
        segment.close()
        segment.unlink()
