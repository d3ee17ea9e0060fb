"""Accumulated gradients under DDP and a GradScaler: the good micro-batches of all ranks are kept, bit for
bit, and all ranks have the same scale. No rank waits for another for ever."""

from __future__ import annotations

import json
from typing import Any

import pytest
from small_training import assert_same
from together import RANKS, Together

NO_AUDIT = ("--audit-seconds", "0", "--audit-share", "0")
STEPS = 6
KINDS, LAYOUTS = ("plain", "fused"), ("no_sync", "each")


PROGRAM = "scaled_micro_batches.py"


def run(together: Together, *runs: str, where: str, watched: bool = False) -> None:
    (together.folder / where).mkdir()
    if watched:
        options = ("--policy", "skip", "--no-explain", *NO_AUDIT)
        ranks = together.nanwatch(*options, program=PROGRAM, arguments=(where, *runs))
    else:
        ranks = together.python(PROGRAM, where, *runs)
    assert [rank.returncode for rank in ranks] == [0, 0], ranks[1].stderr


def state(together: Together, where: str, run: str, rank: int) -> Any:
    return together.state(where, run.replace(":", "-"), rank)


def assert_as_expected(together: Together, found: str, expected: str) -> None:
    for rank in range(RANKS):
        watched, plain = state(together, "watched", found, rank), state(together, "plain", expected, rank)
        assert_same(watched, plain, f"{found}, rank {rank}")


def assert_ranks_alike(together: Together, run: str) -> None:
    first, second = (state(together, "watched", run, rank) for rank in range(RANKS))
    assert first["scaler"] == second["scaler"]
    shared = [name for name in first["weights"] if "running" not in name and "batches" not in name]
    for name in shared:
        assert bool(first["weights"][name].isfinite().all())
        assert_same(first["weights"][name], second["weights"][name], f"{run}, {name}")


def steps_with(together: Together, event: str, rank: int) -> list[tuple[int, int]]:
    """(run, step) of each."""
    file = together.folder / "run" / f"steps-rank{rank}.jsonl"
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [divmod(line["step"], STEPS) for line in lines if event in line["events"]]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_as_if_the_bad_ones_had_never_come(together: Together, kind: str, layout: str) -> None:
    of = f"{kind}:{layout}"
    expected = {
        f"{of}:left:none": f"{of}:left:none",
        f"{of}:clip:batch": f"{of}:clip:batch-left-out",
        f"{of}:left:loss": f"{of}:left:batch-left-out",
        f"{of}:left:backward": f"{of}:left:batch-left-out",
        f"{of}:clip:backward": f"{of}:clip:batch-left-out",
        f"{of}:left:first": f"{of}:left:first-left-out",
        f"{of}:clip:both": f"{of}:clip:both-left-out",
    }
    run(together, *expected, where="watched", watched=True)
    run(together, *sorted(set(expected.values())), where="plain")
    for watched, plain in expected.items():
        assert_as_expected(together, watched, plain)
        assert_ranks_alike(together, watched)
    kept = [(number, step) for number in range(1, len(expected)) for step in (2, 3)]
    for rank in range(RANKS):
        assert steps_with(together, "skip-part", rank) == kept
        assert steps_with(together, "skip", rank) == steps_with(together, "scaler-skip", rank) == []
    told = [i for i in together.incidents() if i["rank"] == 1]
    assert {i["action"] for i in told} == {"skipped"}
    assert any("Left out on this rank: micro-batch 1 of 4" in note for note in told[0]["notes"])


def test_the_search_for_the_scale_goes_on_as_without(together: Together) -> None:
    """Of all ranks together, and of one that has other weights than the rest."""
    runs = [f"{kind}:{layout}:left:search" for kind in KINDS for layout in LAYOUTS]
    odd = [f"{kind}:no_sync:left:one-scaler" for kind in KINDS]
    run(together, *runs, *odd, where="watched", watched=True)
    run(together, *runs, *odd, where="plain")
    for each in (*runs, *odd):
        assert_as_expected(together, each, each)
    for each in runs:
        assert_ranks_alike(together, each)
    assert together.incidents() == []
    first, second = (steps_with(together, "scaler-skip", rank) for rank in range(RANKS))
    searched = [skip for skip in first if skip[0] < len(runs)]
    assert {(number, step) for number in range(len(runs)) for step in (0, 1)} <= set(searched)
    assert second == [*searched, *((len(runs) + number, 2) for number in range(len(odd)))]


def test_where_it_cannot_be_done_all_ranks_leave_the_group_out(together: Together) -> None:
    whole = [f"{kind}:{layout}:left:all" for kind in KINDS for layout in LAYOUTS]
    run(together, *whole, "plain:no_sync:left:one-bad", where="watched", watched=True)
    run(together, *(f"{each}-left-out" for each in whole), where="plain")
    for each in whole:
        assert_as_expected(together, each, f"{each}-left-out")
    assert_ranks_alike(together, "plain:no_sync:left:one-bad")
    skipped = [(number, step) for number in range(len(whole)) for step in (2, 3)]
    for rank in range(RANKS):
        assert steps_with(together, "skip", rank) == [*skipped, (len(whole), 2)]
    told = [i for i in together.incidents() if i["rank"] == 1]
    assert any("All micro-batches of this step are left out" in note for note in told[0]["notes"])


@pytest.mark.parametrize("fault", ["batch", "backward"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_ranks_stop_at_the_bad_step_of_one(together: Together, kind: str, fault: str) -> None:
    options = ("--no-explain", *NO_AUDIT)
    runs = ("watched", f"{kind}:no_sync:left:{fault}")
    ranks = together.nanwatch(*options, program=PROGRAM, arguments=runs)
    assert [rank.returncode for rank in ranks] == [3, 3]
    assert [(i["rank"], i["step"]) for i in together.incidents()] == [(1, 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_where_nanwatch_fails_the_other_rank_hears_of_it(together: Together, kind: str) -> None:
    """Also when the next step is one that the scaler leaves out."""
    each = f"{kind}:no_sync:left:fails"
    run(together, each, where="watched", watched=True)
    run(together, each, where="plain")
    assert_as_expected(together, each, each)
    watched = steps_with(together, "scaler-step", 0)
    assert (0, 0) in watched and (0, 2) not in watched, "it has heard of it in the second step"
