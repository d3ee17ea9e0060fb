"""Document A: text generation, layer by layer. Every fault ends in its cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import Nursery, assert_quiet, assert_told, listed, truths, watched

PROGRAM = "layer_by_layer_generation.py"
TRUTHS = truths("A")


def test_every_fault_has_a_truth(nursery: Nursery, tmp_path: Path) -> None:
    assert listed(nursery, PROGRAM, tmp_path).keys() == TRUTHS.keys()


@pytest.mark.parametrize("fault", TRUTHS)
def test_fault(fault: str, nursery: Nursery, tmp_path: Path) -> None:
    assert_told(watched(nursery, PROGRAM, tmp_path, "--fault", fault), TRUTHS[fault])


def test_healthy(nursery: Nursery, tmp_path: Path) -> None:
    found = watched(nursery, PROGRAM, tmp_path, "--tokens", "12")
    assert_quiet(found)
    assert "loaded decoder.safetensors: 0 keys missing, 0 unknown" in found.done.stdout
    assert "step 11 " in found.done.stdout and "once upon a time" in found.done.stdout
