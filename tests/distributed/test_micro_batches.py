"""Accumulated gradients under DDP: the good micro-batches of all ranks are kept, bit for bit."""

from __future__ import annotations

import pytest
import torch
from small_training import assert_same
from together import RANKS, Together

NO_AUDIT = ("--audit-seconds", "0", "--audit-share", "0")


def run(together: Together, *parts: str, where: str, watched: bool = False) -> None:
    (together.folder / where).mkdir()
    if watched:
        options = ("--policy", "skip", "--no-explain", *NO_AUDIT)
        ranks = together.nanwatch(*options, program="micro_batches.py", arguments=(where, *parts))
    else:
        ranks = together.python("micro_batches.py", where, *parts)
    assert [rank.returncode for rank in ranks] == [0, 0], ranks[1].stderr


@pytest.mark.parametrize("layout", ["no_sync", "each", "view"])
def test_as_if_the_bad_one_had_never_come(together: Together, layout: str) -> None:
    faults = ["none", "batch", "loss", "backward"]
    run(together, *(f"{layout}:{fault}" for fault in faults), where="watched", watched=True)
    run(together, f"{layout}:none", f"{layout}:left-out", where="plain")
    for fault in faults:
        expected = "none" if fault == "none" else "left-out"
        for rank in range(RANKS):
            found = together.state("watched", f"{layout}-{fault}", rank)
            assert_same(found, together.state("plain", f"{layout}-{expected}", rank), f"{fault}, rank {rank}")
    told = [i for i in together.incidents() if i["rank"] == 1]
    assert [i["action"] for i in told] == ["skipped"] * 3
    for incident in told:
        assert any("Left out on this rank: micro-batch 1 of 4" in note for note in incident["notes"])
    assert together.skipped_steps(0) == together.skipped_steps(1) == [], "no whole step was left out"


def test_the_one_after_which_the_ranks_average(together: Together) -> None:
    run(together, "each:last", where="watched", watched=True)
    run(together, "each:last-left-out", where="plain")
    for rank in range(RANKS):
        expected = together.state("plain", "each-last-left-out", rank)
        assert_same(together.state("watched", "each-last", rank), expected, f"rank {rank}")


def test_the_last_one_of_a_rank_under_no_sync(together: Together) -> None:
    """No program can leave it out by itself: its backward is the one that averages. All ranks go on alike."""
    run(together, "no_sync:last", where="watched", watched=True)
    first, second = (together.state("watched", "no_sync-last", rank) for rank in range(RANKS))
    for name, value in first["weights"].items():
        assert bool(value.isfinite().all())
        if "running" not in name and "batches" not in name:
            assert torch.equal(value, second["weights"][name])
    (incident,) = together.incidents()
    assert any("Left out on this rank: micro-batch 3 of 4" in note for note in incident["notes"])


@pytest.mark.parametrize("layout", ["hook", "talks"])
def test_where_it_cannot_be_done_all_ranks_leave_the_group_out(together: Together, layout: str) -> None:
    run(together, f"{layout}:batch", where="watched", watched=True)
    assert together.skipped_steps(0) == together.skipped_steps(1) == [2]
    (incident,) = together.incidents()
    assert any("All micro-batches of this step are left out" in note for note in incident["notes"])
