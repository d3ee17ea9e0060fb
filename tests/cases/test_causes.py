"""The programs cover the closed list of causes, and the pairs that are easily taken for each other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import causes
import truth as truths

from nanwatch.explain.causes import IDS


def test_the_list_of_the_programs_is_that_of_nanwatch() -> None:
    assert [*IDS, "unknown"] == list(truths.CAUSES)


@pytest.mark.parametrize("cause", causes.IDS)
def test_every_cause_has_three_programs(cause: str) -> None:
    assert len(causes.by_cause()[cause]) >= 3


@pytest.mark.parametrize("pair", causes.CONFUSABLE, ids="-or-".join)
def test_every_confusable_pair_has_a_look_alike(pair: tuple[str, str]) -> None:
    assert causes.look_alikes()[pair]
