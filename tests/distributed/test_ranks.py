"""Several ranks: one decision for all where they train together, and nobody ever waits for nobody."""

from __future__ import annotations

import torch
from small_training import assert_same
from together import RANKS, Done, Together

STEPS, BAD_STEP = 5, 3
WRAPPERS = ("ddp", "fsdp2", "accelerate")
NO_AUDIT = ("--audit-seconds", "0", "--audit-share", "0")
ALIKE = "went bad on another rank, so this rank takes the same decision."


def codes(ranks: list[Done]) -> list[int]:
    return [rank.returncode for rank in ranks]


def three_ways(together: Together, *options: str, parts: list[str], where: str) -> list[Done]:
    (together.folder / where).mkdir()
    return together.nanwatch(*options, program="three_ways.py", arguments=(where, *parts))


def test_raise_stops_all_ranks_and_the_bad_one_tells(together: Together) -> None:
    good, bad = three_ways(together, parts=["ddp:batch"], where="out")
    assert codes([good, bad]) == [3, 3]
    (incident,) = together.incidents()
    assert (incident["rank"], incident["step"], incident["phase"]) == (1, BAD_STEP, "data")
    assert (incident["action"], incident["seen_in"]) == ("raised", "loss")
    assert incident["birth"]["samples"] == [2]
    assert (incident["cause"]["id"], incident["cause"]["certainty"]) == ("bad-input", "proved")
    assert any(remedy["verified"] for remedy in incident["remedies"]), "tried while the other rank waited"
    assert good.stderr.count(f"step {BAD_STEP} {ALIKE}") == 1
    assert f"NaN in the data · step {BAD_STEP} · rank 1" in bad.stderr and ALIKE not in bad.stderr
    assert not list((together.folder / "out").iterdir()), "training went on"


def test_the_launcher_ends_nobody_before_the_report(together: Together) -> None:
    done = together.torchrun(*NO_AUDIT, program="slow_report.py")
    assert done.returncode != 0 and "exitcode  : 3" in done.stderr
    (incident,) = together.incidents()
    assert (incident["rank"], incident["step"], incident["birth"]["samples"]) == (1, 2, [1])


def test_raise_in_every_wrapper_without_a_trace(together: Together) -> None:
    parts = ["ddp:batch:caught", "fsdp2:batch:caught", "fsdp2:loss:caught", "accelerate:batch"]
    good, bad = three_ways(together, *NO_AUDIT, parts=parts, where="out")
    assert codes([good, bad]) == [3, 3]
    told = together.incidents()
    assert [(i["rank"], i["seen_in"]) for i in told] == [(1, "loss")] * 4
    assert [i["located_by"] for i in told] == ["replay", "recorded facts", "recorded facts", "replay"]
    assert "The step was not run again: it talks to other ranks (FSDPSequential)" in told[1]["notes"][0]
    assert [i["phase"] for i in told] == ["data", "data", "loss", "data"]
    assert [i["cause"]["id"] for i in told] == ["bad-input", "bad-input", "unknown", "bad-input"]
    assert good.stdout.count("stopped: ") == bad.stdout.count("stopped: ") == 3
    assert good.stderr.count(ALIKE) == 1 and good.stdout.count(ALIKE) == 3


def test_skip_leaves_the_step_out_on_all_ranks_and_a_healthy_run_alone(together: Together) -> None:
    parts = [f"{wrapper}:{fault}" for fault in ("none", "batch") for wrapper in WRAPPERS]
    parts += ["ddp:loss", "fsdp2:loss", "ddp:backward", "fsdp2:backward"]
    watched = three_ways(together, "--policy", "skip", parts=parts, where="watched")
    assert codes(watched) == [0, 0], watched[1].stderr
    (together.folder / "plain").mkdir()
    reference = [f"{wrapper}:{fault}" for fault in ("none", "left-out") for wrapper in WRAPPERS]
    assert codes(together.python("three_ways.py", "plain", *reference)) == [0, 0]

    for part in parts:
        wrapper, fault = part.split(":")
        expected = f"{wrapper}-none" if fault == "none" else f"{wrapper}-left-out"
        for rank in range(RANKS):
            found = together.state("watched", f"{wrapper}-{fault}", rank)
            assert_same(found, together.state("plain", expected, rank), f"{part}, rank {rank}")
            assert all(bool(t.isfinite().all()) for t in found["weights"].values())

    bad_steps = [STEPS * n + BAD_STEP for n, part in enumerate(parts) if not part.endswith(":none")]
    assert together.skipped_steps(0) == together.skipped_steps(1) == bad_steps
    told = together.incidents()
    assert {i["action"] for i in told} == {"skipped"}
    assert [i["step"] for i in told if i["rank"] == 1] == bad_steps
    assert {i["seen_in"] for i in told if i["rank"] == 0} == {"gradients"}, "only these may be its own"
    assert watched[0].stderr.count(ALIKE) == 1, "said once"


def test_observe_goes_on_to_the_end(together: Together) -> None:
    parts = ["ddp:batch", "fsdp2:batch", "fsdp2:loss"]
    ranks = three_ways(together, "--policy", "observe", *NO_AUDIT, parts=parts, where="out")
    assert codes(ranks) == [0, 0]
    first = [i for i in together.incidents() if i["step"] % STEPS == BAD_STEP]
    assert [(i["rank"], i["action"]) for i in first] == [(1, "observed")] * 3
    for rank in range(RANKS):
        weights = together.state("out", "ddp-batch", rank)["weights"]
        assert not all(bool(t.isfinite().all()) for t in weights.values()), "the step was made"


def test_a_rank_that_dies_ends_the_others(together: Together) -> None:
    left, dead = together.nanwatch(program="one_rank_dies.py")
    assert dead.returncode == 9 and left.returncode not in (0, 3)
    assert "made step 1" in left.stdout and "made step 3" not in left.stdout
    assert together.incidents() == []


def test_without_a_wrapper_each_rank_is_judged_for_itself(together: Together) -> None:
    good, bad = together.nanwatch(program="each_for_itself.py")
    assert codes([good, bad]) == [0, 3]
    assert "made step 3" in good.stdout and ALIKE not in good.stderr
    assert [i["rank"] for i in together.incidents()] == [1]


def test_nobody_waits_for_a_rank_that_does_not_come(together: Together) -> None:
    ranks = together.python("odd_ways.py", str(together.folder))
    assert codes(ranks) == [0, 0], "\n".join(rank.stderr for rank in ranks)
    good, bad = (dict(line.split(maxsplit=1) for line in rank.stdout.splitlines()) for rank in ranks)

    assert bad["alone_in_its_group"] == "(1, 'finite')"
    assert good["uneven_inputs"] == bad["uneven_inputs"] == "(0, 'finite')"
    assert good["only_one_is_watched"] == "finite"
    assert ranks[0].stderr.count("are not watched, so each rank judges for itself") == 1
    for way in ("own_failure_on_one", "own_failure_in_the_step_on_one"):
        assert good[way] == bad[way] == "(True, 'finite')", way
    assert ranks[0].stderr.count("so it steps aside here too") == 2
    assert good["own_failure_on_one_in_device_mode"] == "(False, 'finite')"
    assert good["device_mode"] == bad["device_mode"] == "(2, 'finite')"
    assert bad["collective_in_the_model"] == "([(1, 'recorded facts')], 'finite')"
    said = " ".join(ranks[1].stderr.split())  # the screen may break the line anywhere
    assert "The step was not run again: it talks to other ranks (c10d.allreduce_.default)" in said
    assert bad["wrapper_inside_a_module"].startswith("([(1, 'x[2] = NAN')]")


def test_looking_for_the_cause_sends_nothing_to_the_others(together: Together) -> None:
    """A model that talks to other ranks in its forward: experiments would take their next message."""
    ranks = together.nanwatch("--policy", "skip", program="talks_in_forward.py")
    assert codes(ranks) == [0, 0], ranks[1].stderr
    assert [rank.stdout.count("step ") for rank in ranks] == [4, 4], "all ranks have trained on, in step"
    told = {incident["rank"]: incident for incident in together.incidents()}
    assert set(told) == {0, 1}, "the other rank's mean is bad too"
    assert (told[1]["cause"]["id"], told[1]["birth"]["samples"]) == ("bad-input", [1])


def test_all_ranks_go_back_together(together: Together) -> None:
    options = ("--policy", "survive", "--skip-in-a-row", "2", "--snapshot-every", "2", "--no-explain")
    ranks = together.nanwatch(*options, program="goes_back.py", arguments=("end",))
    assert codes(ranks) == [0, 0], ranks[1].stderr
    ends = [torch.load(together.folder / f"end-{rank}.pt") for rank in range(RANKS)]
    assert_same(ends[0], ends[1], "the ranks have come apart")
    assert ends[0]["rate"] == 0.005, "lowered once"
    assert all(bool(t.isfinite().all()) for t in ends[0]["weights"].values())
    assert [rank.stderr.count("went back to the state after step 4") for rank in ranks] == [1, 1]
    told = [incident for incident in together.incidents() if incident["rank"] == 1]
    assert [i["action"] for i in told] == ["skipped", "skipped", "rolled-back", "skipped"]
