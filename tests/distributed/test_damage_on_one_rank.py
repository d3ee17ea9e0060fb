"""Memory that changed on one rank: all ranks take the same decision, though only one can see it."""

from __future__ import annotations

import pytest
from small_training import assert_same
from together import Together

OPTIONS = ("--no-explain",)


def test_all_ranks_go_back(together: Together) -> None:
    (together.folder / "out").mkdir()
    options = ("--policy", "rollback", "--snapshot-every", "2", *OPTIONS)
    ranks = together.nanwatch(*options, program="bit_in_one_rank.py", arguments=("out",))
    assert [rank.returncode for rank in ranks] == [0, 0], ranks[1].stderr
    (incident,) = together.incidents()
    assert (incident["rank"], incident["step"], incident["kind"]) == (1, 6, "bit")
    assert (
        incident["action"] == "rolled-back" and incident["birth"]["outputs"][0]["name"] == "module.0.weight"
    )
    for rank in ranks:
        assert rank.stderr.count("went back to the state after step 4") == 1
    assert_same(together.state("out", "weights", 0), together.state("out", "weights", 1))


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_all_ranks_stop_or_go_on(together: Together, policy: str) -> None:
    (together.folder / "out").mkdir()
    ranks = together.nanwatch("--policy", policy, *OPTIONS, program="bit_in_one_rank.py", arguments=("out",))
    assert [rank.returncode for rank in ranks] == ([3, 3] if policy == "raise" else [0, 0])
    (incident,) = together.incidents()
    assert incident["action"] == ("raised" if policy == "raise" else "observed")
