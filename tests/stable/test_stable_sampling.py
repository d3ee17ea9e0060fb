"""Sampling: torch.multinomial's draws from sound rows; from others an error that names them, or a repair."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stable_checks import DTYPES, INF, NAN, quick, row
from torch import Tensor

from nanwatch import stable

GOOD = torch.tensor([[0.1, 0.2, 0.7], [0.0, 0.5, 0.5]])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@quick
@given(
    st.lists(st.floats(0, 1e6, width=32).map(lambda v: v if v > 1e-3 else 0.0), min_size=1, max_size=9),
    st.integers(0, 99),
)
def test_sound_rows_are_drawn_as_torch_draws_them(values: list[float], seed: int) -> None:
    weights = torch.tensor(values)
    if weights.sum() == 0:
        return
    expected = torch.multinomial(weights, 1, generator=seeded(seed))[0]
    assert stable.sample(weights, generator=seeded(seed)) == expected
    logits = weights.log()
    expected = torch.multinomial(torch.softmax(logits, -1), 1, generator=seeded(seed))[0]
    assert stable.sample(logits=logits, generator=seeded(seed)) == expected


@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 3, 5), (0, 5)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_shapes_and_dtypes(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    drawn = stable.sample(logits=torch.randn(shape).to(dtype), temperature=0.7, top_k=3, top_p=0.9)
    assert drawn.shape == shape[:-1] and drawn.dtype == torch.int64 and ((drawn >= 0) & (drawn < 5)).all()


BAD_PROBABILITIES = {
    "NaN": (row(0.1, NAN, 0.6), "1 NaN, 0 Inf, 0 negative, 2 usable of 3", 2),
    "Inf": (row(INF, 0.2, 0.1), "0 NaN, 1 Inf, 0 negative, 2 usable of 3", 1),
    "negative": (row(0.2, -0.1, 0.1), "0 NaN, 0 Inf, 1 negative, 2 usable of 3", 0),
    "zero": (row(0.0, 0.0, 0.0), "0 NaN, 0 Inf, 0 negative, 0 usable of 3", None),
    "all NaN": (row(NAN, NAN, NAN), "3 NaN, 0 Inf, 0 negative, 0 usable of 3", None),
}
BAD_LOGITS = {
    "NaN": (row(0.1, NAN, 0.6), "1 NaN, 0 Inf, 0 negative, 2 usable of 3", 2),
    "Inf": (row(INF, 0.2, 0.1), "0 NaN, 1 Inf, 0 negative, 2 usable of 3", 1),
    "all masked": (row(-INF, -INF, -INF), "0 NaN, 0 Inf, 0 negative, 0 usable of 3", None),
}
CASES = [
    (name, *case)
    for name, cases in (("probabilities", BAD_PROBABILITIES), ("logits", BAD_LOGITS))
    for case in cases.values()
]


@pytest.mark.parametrize(("name", "bad", "counts", "repaired"), CASES)
def test_an_unsound_row_is_named_or_repaired(
    name: str, bad: Tensor, counts: str, repaired: int | None
) -> None:
    rows = torch.stack([GOOD[0], bad, GOOD[1], bad])
    with pytest.raises(RuntimeError):
        torch.multinomial(rows if name == "probabilities" else torch.softmax(rows, -1), 1)
    with pytest.raises(stable.UnsoundProbabilitiesError) as raised:
        stable.sample(**{name: rows})
    assert isinstance(raised.value, ValueError) and raised.value.rows == [1, 3]
    assert str(raised.value) == (
        f"nanwatch.stable.sample: 2 of 4 rows of {name} cannot be drawn from; the first is row 1: {counts}. "
        f"What computed {name} is at fault: look there with nanwatch.trace(), or pass repair=True to draw "
        "all the same."
    )
    for settings in ({}, {"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.9}, {"temperature": 0.0}):
        with pytest.warns(RuntimeWarning, match=f"2 of 4 rows of {name} could not be drawn from") as caught:
            drawn = stable.sample(**{name: rows}, repair=True, **settings)
        assert caught[0].filename == __file__
        if repaired is not None:
            assert drawn[1] == repaired and drawn[3] == repaired


def test_a_hopeless_row_is_drawn_evenly() -> None:
    rows = torch.full((3000, 3), NAN)
    with pytest.warns(RuntimeWarning):
        counts = stable.sample(rows, repair=True, generator=seeded()).bincount(minlength=3)
    assert counts.min() > 900


def test_repair_leaves_sound_rows_alone_and_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = stable.sample(GOOD, repair=True, generator=seeded(4))
    assert torch.equal(drawn, stable.sample(GOOD, generator=seeded(4)))


@pytest.mark.parametrize("temperature", [0.0, 1e-45, 1e-30, 1e-6])
@pytest.mark.parametrize("name", ["logits", "probabilities"])
def test_low_temperatures_take_the_largest(temperature: float, name: str) -> None:
    rows = torch.tensor([[1.0, 3.0, 2.0], [9.0, 0.1, 0.2]])
    if temperature in (0.0, 1e-45) and name == "logits":
        assert torch.softmax(rows / temperature, -1).isnan().any(), "the plain formula"
    assert stable.sample(**{name: rows}, temperature=temperature).tolist() == [1, 0]


def test_temperature_of_probabilities_is_that_of_their_logarithms() -> None:
    rows = torch.rand(50, 7, generator=seeded(1))
    mine = stable.sample(rows, temperature=0.6, generator=seeded(2))
    assert torch.equal(mine, stable.sample(logits=rows.log(), temperature=0.6, generator=seeded(2)))


def test_top_k_and_top_p() -> None:
    rows = torch.tensor([0.05, 0.5, 0.15, 0.3]).expand(400, 4)

    def drawn(**settings: float) -> list[int]:
        return sorted(set(stable.sample(rows, generator=seeded(), **settings).tolist()))

    assert drawn() == [0, 1, 2, 3] and drawn(top_k=2) == [1, 3] and drawn(top_k=99) == [0, 1, 2, 3]
    assert drawn(top_p=0.79) == [1, 3] and drawn(top_p=0.5) == [1] and drawn(top_p=1e-9) == [1]
    assert drawn(top_p=1.0) == [0, 1, 2, 3] and drawn(top_p=0.97) == [0, 1, 2, 3]
    assert drawn(top_k=3, top_p=0.9) == [1, 2, 3] and drawn(top_k=3, top_p=0.8) == [1, 3]
    assert drawn(top_k=1) == [1]


@pytest.mark.parametrize("size", [1e-44, 1e-30, 1e38])
def test_the_sum_of_the_weights_may_leave_float32(size: float) -> None:
    rows = torch.tensor([[0.0, 1.0, 3.0, 3.0]]).mul(size).expand(100, 4)
    if size == 1e38:
        assert rows.sum(-1).isinf().all()
    drawn = stable.sample(rows, generator=seeded())
    assert set(drawn.tolist()) == {1, 2, 3}
    assert set(stable.sample(rows, top_p=0.8, generator=seeded()).tolist()) == {2, 3}


def test_no_gradient_is_kept() -> None:
    assert not stable.sample(logits=torch.zeros(3, requires_grad=True)).requires_grad
