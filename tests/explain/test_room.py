"""The memory that another run of the step needs, and what is free."""

from __future__ import annotations

import subprocess
import sys

import torch

from nanwatch.explain import room

PROGRAM = """
import torch
from nanwatch.explain import room

MEBIBYTE = 2**20
values = torch.ones(300 * MEBIBYTE // 4)
held, _ = room.host()
del values
needed, free = room.host()
assert needed >= held + 250 * MEBIBYTE, (needed, held)
assert free > 0
assert room.room_for_a_step() == (free >= needed)
"""


def test_what_the_program_has_freed_is_what_another_step_needs() -> None:
    """In a process of its own: in one that has freed much before, memory may not go back to the system."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_no_experiment_without_room(monkeypatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    import pytest

    import nanwatch

    monkeypatch.setattr(room, "host", lambda: (2, 1))
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(nanwatch.NonFiniteError) as caught, nanwatch.watch(model, optimizer, dir=tmp_path):
        x = torch.randn(4, 3)
        (model(x) / (x[:, :1] * 0)).sum().backward()
        optimizer.step()
    assert caught.value.incident.cause.id == "divide-by-zero"
    assert {e.outcome for e in caught.value.incident.experiments} <= {"not done: too little memory is free"}
