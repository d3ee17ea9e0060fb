"""Document C: networks that explode end in their cause; those that vanish raise no alarm, and are noted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Nursery, assert_quiet, assert_told, listed, truths, watched

PROGRAM = "exploding_and_vanishing"
TRUTHS = truths("C")
LOUD = [fault for fault, truth in TRUTHS.items() if truth["cause"]]
QUIET = [fault for fault, truth in TRUTHS.items() if not truth["cause"]]


def test_every_fault_has_a_truth(nursery: Nursery, tmp_path: Path) -> None:
    assert listed(nursery, PROGRAM, tmp_path).keys() == TRUTHS.keys()


@pytest.mark.parametrize("fault", LOUD)
def test_fault(fault: str, nursery: Nursery, tmp_path: Path) -> None:
    assert_told(watched(nursery, PROGRAM, tmp_path, "--fault", fault), TRUTHS[fault])


@pytest.mark.parametrize("fault", QUIET)
def test_layers_that_learn_nothing_are_noted(fault: str, nursery: Nursery, tmp_path: Path) -> None:
    """In nearly every step that was audited; nothing is non-finite, so nothing is stopped."""
    assert_quiet(watched(nursery, PROGRAM, tmp_path, "--fault", fault))
    lines = (tmp_path / "run" / "steps-rank0.jsonl").read_text().splitlines()
    audited = [facts for facts in (json.loads(line).get("facts", {}) for line in lines) if "layers" in facts]
    noted = [facts.get(TRUTHS[fault]["timeline"], ()) for facts in audited]
    assert len(audited) >= 3
    assert sum("blocks.2.linear.weight" in names for names in noted) >= 0.9 * len(audited), noted


@pytest.mark.parametrize("model", ["mlp", "rnn", "transformer"])
def test_healthy(model: str, nursery: Nursery, tmp_path: Path) -> None:
    found = watched(nursery, PROGRAM, tmp_path, "--model", model)
    assert_quiet(found)
    losses = [float(line.split()[-1]) for line in found.done.stdout.splitlines()]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5]), "it learns"
