"""The public cases do what their truths say: some of them in each run, all of them with the slow tests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from bench.case import CASES, CAUSES, GROUPS, Case, read_all
from bench.check_truth import RACES, check

GOOD, WRONG = read_all(CASES)
CERTAIN = [case for case in GOOD if not RACES & set(case.causes)]
"""A race is not lost every time, and least of all on a busy machine."""
ALONE, TOGETHER = ([c for c in CERTAIN if (c.processes > 1) == several] for several in (False, True))
SOME = [*ALONE[::10], *TOGETHER[::3]]
OTHERS = [case for case in GOOD if case not in SOME]


def named(case: Case) -> str:
    return case.name


@pytest.fixture(scope="module")
def nursery() -> Iterator[ProcessPoolExecutor]:
    """A process that has done nothing but import torch: its children are as good as new."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("case", SOME, ids=named)
def test_the_truth_holds(case: Case, nursery: ProcessPoolExecutor) -> None:
    assert nursery.submit(check, case).result()[0] == []


@pytest.mark.slow
@pytest.mark.parametrize("case", OTHERS, ids=named)
def test_the_truth_of_the_others_holds(case: Case, nursery: ProcessPoolExecutor) -> None:
    assert nursery.submit(check, case).result()[0] == []


def test_every_folder_is_a_case() -> None:
    assert WRONG == []


def test_there_are_enough_and_of_every_kind() -> None:
    bad = [case for case in GOOD if not case.healthy]
    assert len(bad) >= 100 and len(GOOD) - len(bad) >= 30
    assert set(GROUPS) == {case.group for case in bad}
    causes = Counter(case.cause for case in bad)
    assert len(causes) >= len(CAUSES) // 2 and causes.most_common(1)[0][1] <= len(bad) // 4


def test_scripts_give_nothing_away() -> None:
    for case in GOOD:
        text = case.script.read_text()
        assert not re.search(r"nanwatch|truth\.json|# BIRTH", text), case.name
        assert len(text.splitlines()) <= 100, case.name
