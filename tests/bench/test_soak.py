"""A short soak: one fault of each kind, in real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.soak import soak
from bench.soak_training import FAULTS


@pytest.mark.slow
def test_one_fault_of_each_kind_is_survived(tmp_path: Path) -> None:
    found = soak(steps=200, faults=len(FAULTS), seed=1, folder=tmp_path)
    assert found["rows"] == {kind: {"injected": 1, "survived": 1, "unseen damage": 0} for kind in FAULTS}
    assert found["finite"] and found["all_steps"] and found["processes"] == 2
