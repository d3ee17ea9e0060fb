"""One rank sees an overflow coming: all lower their learning rate at the same update, or none does."""

from __future__ import annotations

import json
from typing import Any

from small_training import assert_same
from together import Done, Together

LOWERED = 31
NOT_LOWERED = "the learning rate stays as it is on all ranks: one of them cannot lower it"
ON_ALL = "as on all ranks: rank {rank} has an early warning of an overflow."

Results = list[dict[str, Any]]


class Ended:
    """What all ranks have come to."""

    def __init__(self, together: Together, *parts: str, ranks: int) -> None:
        self.together, self.ranks = together, ranks
        done = together.python("warned_ranks.py", str(together.folder), *parts, ranks=ranks)
        assert [rank.returncode for rank in done] == [0] * ranks, "\n".join(rank.stderr for rank in done)
        self.done: list[Done] = done
        self._told = [[json.loads(line) for line in rank.stdout.splitlines()] for rank in done]

    def told(self, part: str) -> Results:
        """By each rank."""
        return [next(line for line in lines if line["part"] == part) for lines in self._told]

    def state(self, part: str, rank: int = 0) -> Any:
        return self.together.state(".", part.replace(":", "-"), rank)

    def same_on_all_ranks(self, part: str) -> Any:
        first = self.state(part)
        for rank in range(1, self.ranks):
            assert_same(self.state(part, rank), first, f"{part}: rank {rank} has come apart")
        return first

    def rates(self, part: str) -> list[float]:
        """Of the first optimizer, after each step; the same on all ranks."""
        rates: list[list[list[float]]] = [self.state(part, rank)["rates"] for rank in range(self.ranks)]
        assert all(other == rates[0] for other in rates)
        return [each[0] for each in rates[0]]


def constant(rate: float) -> list[float]:
    return [rate] * 42


def test_all_ranks_lower_the_rate_at_the_same_update(together: Together) -> None:
    parts = ["ddp:rise", "ddp:by-hand:plain", "fsdp2:rise", "fsdp2:by-hand:plain", "ddp:all", "two:rise"]
    ended = Ended(together, *parts, ranks=2)
    for wrapper in ("ddp", "fsdp2"):
        first, last = ended.told(f"{wrapper}:rise")
        assert (first["warned"], last["warned"]) == ([], [LOWERED - 1, LOWERED + 5])
        assert first["lowered"] == last["lowered"] == [LOWERED, LOWERED + 6]
        lowered = ended.same_on_all_ranks(f"{wrapper}:rise")
        assert_same(lowered, ended.state(f"{wrapper}:by-hand:plain"), wrapper)
    assert ended.rates("ddp:rise") == [0.01] * 31 + [0.005] * 6 + [0.0025] * 5

    for told in ended.told("ddp:all"):
        assert len(told["lowered"]) == 3, "once for all that warn together"
    ended.same_on_all_ranks("ddp:all")

    one, other = ended.told("two:rise")
    assert one["warned"] == [] and one["lowered"] == other["lowered"] and len(one["lowered"]) > 1
    both = ended.same_on_all_ranks("two:rise")["rates"]
    factor = 0.5 ** len(one["lowered"])
    for begun, ended_at in zip((0.01, 0.04), both[-1], strict=True):
        assert abs(ended_at / (begun * 0.99**42 * factor) - 1) < 1e-9, "the schedules go on from there"


def test_who_says_what(together: Together) -> None:
    ended = Ended(together, "ddp:rise", ranks=2)
    first, last = (rank.stderr.splitlines() for rank in ended.done)
    lines = ("at step 31 the learning rate was lowered from 0.01 to 0.005, ",)
    lines += ("at step 37 the learning rate was lowered from 0.005 to 0.0025, ",)
    assert first == [f"nanwatch: {line}{ON_ALL.format(rank=1)}" for line in lines]
    assert last[1::2] == [f"nanwatch: {line}before the overflow." for line in lines]
    assert "step 30: the loss has risen from" in last[0] and "step 36: the loss has risen from" in last[2]
    folder = together.folder / "ddp-rise"
    written = (folder / "warnings-rank1.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in written] == [30, 36]
    assert not (folder / "warnings-rank0.jsonl").exists()
    for rank in range(2):
        steps = (folder / f"steps-rank{rank}.jsonl").read_text(encoding="utf-8").splitlines()
        events = {step["step"]: step["events"] for step in map(json.loads, steps)}
        assert [step for step, names in events.items() if "rate-lowered" in names] == [31, 37]
        assert json.loads(steps[31])["lr"] == [0.005]


def test_the_floor_is_the_same_on_all_ranks_and_each_rise_counts_once(together: Together) -> None:
    ended = Ended(together, "ddp:floor", "ddp:mild", ranks=3)
    ended.same_on_all_ranks("ddp:floor")
    rates = ended.rates("ddp:floor")
    assert sorted(set(rates), reverse=True) == [0.01, 0.005, 0.003]
    ended.same_on_all_ranks("ddp:mild")
    lowered = ended.told("ddp:mild")[0]["lowered"]
    assert lowered == ended.told("ddp:mild")[2]["lowered"] == [29, 35, 41], "not once for each rank"


def test_without_a_warning_nothing_changes(together: Together) -> None:
    ended = Ended(together, "ddp:none", "ddp:none:plain", ranks=3)
    assert_same(ended.same_on_all_ranks("ddp:none"), ended.same_on_all_ranks("ddp:none:plain"))
    assert [told["lowered"] for told in ended.told("ddp:none")] == [[]] * 3


def test_when_one_rank_cannot_no_rank_does(together: Together) -> None:
    ended = Ended(together, "ddp:fails", "ddp:no-precautions", ranks=3)
    for part in ("ddp:fails", "ddp:no-precautions"):
        ended.same_on_all_ranks(part)
        assert ended.rates(part) == constant(0.01)
        assert not any(told["broken"] or told["lowered"] for told in ended.told(part)), part
        assert len(ended.told(part)[2]["warned"]) == 1, part
    assert [rank.stderr.count(NOT_LOWERED) for rank in ended.done] == [1, 1, 2], "said once"


def test_a_rank_that_leaves_in_that_step_takes_the_wish_with_it(together: Together) -> None:
    ended = Ended(together, "ddp:fails-late", ranks=2)
    assert all(told["broken"] for told in ended.told("ddp:fails-late"))
    assert ended.told("ddp:fails-late")[1]["warned"] == [LOWERED - 1]
    ended.same_on_all_ranks("ddp:fails-late")
    assert ended.rates("ddp:fails-late") == constant(0.01)


def test_a_bad_step_meanwhile(together: Together) -> None:
    ended = Ended(together, "ddp:skip", "ddp:back", ranks=2)
    for part, done in (("ddp:skip", [1, 0]), ("ddp:back", [0, 1])):
        ended.same_on_all_ranks(part)
        assert [told["done"] for told in ended.told(part)] == [done, done]
        assert [told["lowered"][0] for told in ended.told(part)] == [LOWERED, LOWERED]
    assert ended.rates("ddp:skip")[30:33] == [0.01, 0.005, 0.005]
    assert ended.rates("ddp:back")[30:33] == [0.01, 0.005, 0.005], "half of what it was in the snapshot"


def test_where_no_rank_asks_the_others(together: Together) -> None:
    parts = ("ddp:joined", "ddp:unwatched", "ddp:device")
    ended = Ended(together, *parts, ranks=2)
    for part in parts:
        ended.same_on_all_ranks(part)
        assert ended.rates(part) == constant(0.01)
        assert ended.told(part)[1]["warned"] and not ended.told(part)[1]["lowered"], part


def test_several_groups(together: Together) -> None:
    """On a grid a wish comes to all ranks; along a chain it could not, so nobody lowers and nobody waits."""
    grid = Ended(together, "grid:rise", ranks=4)
    grid.same_on_all_ranks("grid:rise")
    told = grid.told("grid:rise")
    assert told[3]["warned"] and not any(t["warned"] for t in told[:3])
    assert len(told[0]["lowered"]) > 1 and len({tuple(t["lowered"]) for t in told}) == 1

    chain = Ended(together, "chain:rise", ranks=3)
    assert chain.told("chain:rise")[2]["warned"]
    assert chain.rates("chain:rise") == constant(0.01)
    assert [rank.stderr.count(NOT_LOWERED) for rank in chain.done] == [0, 0, 1]
