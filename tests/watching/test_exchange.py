"""What ranks tell each other before an update: the worst verdict, and whether one of them has a wish."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nanwatch.watching.ranks import LEAVING, NO_WISHES, SEVERITY, Lockstep

RANK, SIZE = 1, 4
GRADIENTS, LOSS = SEVERITY.index("gradients"), SEVERITY.index("loss")


class Wishes:
    """Writes down what it was asked to do."""

    def __init__(self, can: bool | Exception = True) -> None:
        self.can = can
        self.heard: list[Any] = []

    def honour(self, rank: int | None) -> bool:
        self.heard.append(("honour", rank))
        if isinstance(self.can, Exception):
            raise self.can
        return self.can

    def settle(self, by_all: bool) -> None:
        self.heard.append(("settle", by_all))


class Others:
    """The other ranks: what they say in each exchange, nothing when nothing is left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, groups: int = 1) -> None:
        self.say: list[tuple[int, int]] = []
        self.told: list[list[int]] = []
        self.left: list[str] = []
        self.lockstep = Lockstep(self.left.append)
        self.lockstep.wishes = self.wishes = Wishes()
        group = SimpleNamespace(_device_types=[torch.device("cpu")])
        self.lockstep._groups = {str(n): group for n in range(groups)}
        monkeypatch.setattr(torch.distributed, "all_reduce", self._all_reduce)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: RANK)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: SIZE)

    def _all_reduce(self, flag: torch.Tensor, op: Any, group: Any) -> None:
        assert op == torch.distributed.ReduceOp.MAX
        self.told.append(flag.tolist())
        flag.copy_(torch.maximum(flag, torch.tensor(self.say.pop(0) if self.say else (0, 0))))


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Others:
    return Others(monkeypatch)


def test_without_a_wish_there_is_one_exchange(others: Others) -> None:
    assert others.lockstep.agreed(None) is None
    assert others.told == [[0, 0]] and others.wishes.heard == []


@pytest.mark.parametrize("mine", [None, "left out"])
@pytest.mark.parametrize("verdict", ["left out", "overflow"])
def test_what_one_rank_sees_may_be_so_for_all(others: Others, mine: str | None, verdict: str) -> None:
    others.say = [(SEVERITY.index(verdict), 0)]
    assert others.lockstep.agreed(mine) == verdict


def test_a_bad_loss_elsewhere_is_worse_than_a_batch_that_was_left_out(others: Others) -> None:
    others.say = [(LOSS, 0)]
    assert others.lockstep.agreed("left out") == "rank"


def test_a_wish_goes_with_the_verdict_and_is_said_once(others: Others) -> None:
    others.lockstep.wish = True
    assert others.lockstep.agreed("gradients") == "gradients"
    assert others.lockstep.agreed(None) is None
    assert others.told == [[GRADIENTS, SIZE - RANK], [0, 0], [0, 0]]
    assert others.wishes.heard == [("honour", None), ("settle", True)]


@pytest.mark.parametrize(("wished", "asked_by"), [(SIZE, 0), (SIZE - RANK, None), (SIZE - 3, 3)])
def test_another_ranks_wish_is_honoured_by_the_first_that_has_it(
    others: Others, wished: int, asked_by: int | None
) -> None:
    others.say = [(0, wished)]
    assert others.lockstep.agreed(None) is None
    assert others.wishes.heard == [("honour", asked_by), ("settle", True)]


def test_a_bad_verdict_and_a_wish_are_both_heard(others: Others) -> None:
    others.say = [(LOSS, SIZE)]
    assert others.lockstep.agreed(None) == "rank"
    assert others.wishes.heard == [("honour", 0), ("settle", True)]


def test_all_or_none(others: Others) -> None:
    others.say = [(0, SIZE), (1, 0)]
    assert others.lockstep.agreed(None) is None
    assert others.wishes.heard == [("honour", 0), ("settle", False)]


@pytest.mark.parametrize("trouble", [False, RuntimeError("no")])
def test_a_rank_that_cannot_says_so(others: Others, trouble: bool | Exception) -> None:
    others.wishes.can = trouble
    others.say = [(0, SIZE)]
    assert others.lockstep.agreed(None) is None
    assert others.told == [[0, 0], [1, 0]] and others.wishes.heard[-1] == ("settle", False)


def test_where_no_wish_can_be_honoured_all_hear_of_it(others: Others) -> None:
    others.lockstep.wishes = None
    others.say = [(0, SIZE)]
    assert others.lockstep.agreed(None) is None
    assert others.told == [[0, NO_WISHES]], "no second exchange: the others have heard it in this one"


def test_a_wish_that_is_turned_down_is_settled(others: Others) -> None:
    others.lockstep.wish = True
    others.say = [(0, NO_WISHES)]
    assert others.lockstep.agreed(None) is None
    assert len(others.told) == 1 and others.wishes.heard == [("settle", False)]


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_rank_that_leaves_takes_all_wishes_with_it(others: Others, meanwhile: bool) -> None:
    others.lockstep.wish = True
    others.say = [*([(0, 0)] if meanwhile else []), (LEAVING, 0)]
    assert others.lockstep.agreed("loss") is None
    assert len(others.left) == 1 and not others.lockstep.groups
    assert others.wishes.heard == ([("honour", None), ("settle", False)] if meanwhile else [])


def test_whether_all_can_says_nothing_of_a_wish_and_keeps_it(others: Others) -> None:
    others.lockstep.wish = True
    assert others.lockstep.all_can(True)
    others.say = [(1, 0)]
    assert not others.lockstep.all_can(True)
    assert others.told == [[0, 0], [0, 0]] and others.lockstep.wish
    others.lockstep.agreed(None)
    assert others.told[2] == [0, SIZE - RANK]


def test_one_group_hands_on_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    others = Others(monkeypatch, groups=2)
    others.say = [(2, SIZE - 3), (LOSS, SIZE - 2)]
    assert others.lockstep.agreed(None) == "rank"
    assert others.told[:2] == [[0, 0], [2, SIZE - 3]], "what the first group knows is told to the second"
    assert others.wishes.heard[0] == ("honour", 2)


def test_while_ranks_may_run_out_of_data_a_wish_is_dropped(others: Others) -> None:
    others.lockstep.wish = True
    others.lockstep.step_begins(on_device=True)
    others.lockstep.step_begins(on_device=False)
    assert others.lockstep.wish
    joining: Any = torch.nn.Identity()
    joining._join_config = SimpleNamespace(enable=True)
    others.lockstep.replicas.add(joining)
    others.lockstep.step_begins(on_device=False)
    joining._join_config = None
    others.lockstep.agreed(None)
    assert others.told == [[0, 0]]


def test_which_groups_reach_all_ranks(others: Others, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "get_process_group_ranks", lambda group: group)

    def reach_all(*groups: tuple[int, ...] | None, grids: tuple[frozenset[str], ...] = ()) -> bool:
        others.lockstep._groups = dict(zip("abcd", groups, strict=False))
        others.lockstep._grids = set(grids)
        return others.lockstep._reach_all()

    assert reach_all() and reach_all((0, 1)) and reach_all((0, 1), (0, 1, 2, 3)) and reach_all((0, 1), (1, 0))
    assert not reach_all((0, 1), (1, 2)) and not reach_all(None) and not reach_all((0, 1), None)
    assert reach_all((0, 1), (0, 2), grids=(frozenset("ab"),))
    assert not reach_all((0, 1), (0, 2), (0, 3), grids=(frozenset("ab"), frozenset("c")))
