"""Document E: diffusion on images of tokens, in float16 with a GradScaler. Every fault ends in its cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import Nursery, assert_quiet, assert_told, listed, truths, watched

PROGRAM = "token_diffusion"
TRUTHS = truths("E")


def test_every_fault_has_a_truth(nursery: Nursery, tmp_path: Path) -> None:
    assert listed(nursery, PROGRAM, tmp_path).keys() == TRUTHS.keys()


@pytest.mark.parametrize("fault", TRUTHS)
def test_fault(fault: str, nursery: Nursery, tmp_path: Path) -> None:
    assert_told(watched(nursery, PROGRAM, tmp_path, "--fault", fault), TRUTHS[fault])


@pytest.mark.parametrize("precision", ["fp16", "bf16", "float32"])
def test_healthy(precision: str, nursery: Nursery, tmp_path: Path) -> None:
    found = watched(nursery, PROGRAM, tmp_path, "--steps", "40", "--precision", precision)
    assert_quiet(found)
    assert "step 40/40 | loss 0." in found.done.stdout


def test_a_rate_that_throws_the_loss_up_is_behind_the_overflow(nursery: Nursery, tmp_path: Path) -> None:
    """In half precision it ends in an overflow; what is to be changed is the rate."""
    found = watched(nursery, PROGRAM, tmp_path, "--fault", "high-rate")
    incident = assert_told(found, {**TRUTHS["high-rate"], "also": []})
    assert "half-overflow" in {other["id"] for other in incident["others"]}
    assert "lower-learning-rate" in {r["id"] for r in incident["remedies"] if r["verified"]}
