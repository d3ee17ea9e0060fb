"""What an op makes beside what it was handed, and which of the two is to blame."""

from __future__ import annotations

import pytest
import torch

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.mechanism import DIVIDE_BY_ZERO, INF_ARITHMETIC, LOG_OF_ZERO, OVERFLOW, mechanism_of
from nanwatch.replay.blame import Blame, first_harmful
from nanwatch.replay.fresh import Fresh, fresh_values
from nanwatch.replay.tracer import OpTracer
from nanwatch.replay.without_given import with_numbers
from nanwatch.watching.module_calls import Scope

INF, NAN = float("inf"), float("nan")


def test_only_what_no_operand_explains_is_fresh() -> None:
    above = torch.tensor([1.0, -1.0, 0.0, NAN, -INF, INF])
    below = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, INF])
    found = fresh_values([above, below], above / below)
    assert found is not None
    fresh, born = found
    assert fresh == Fresh(posinf=1, neginf=1, nan=2, nan_of_inf=1)
    assert born.tolist() == [True, True, True, False, False, True]


def test_operands_are_spread_as_torch_spreads_them() -> None:
    scores = torch.tensor([[1.0, -INF], [2.0, -INF]])
    found = fresh_values([scores, torch.tensor([[1.0], [0.0]])], scores / torch.tensor([[1.0], [0.0]]))
    assert found is not None and found[1].tolist() == [[False, False], [True, False]]


@pytest.mark.parametrize("values", [[1.0, -INF], [1.0, NAN]])
def test_nothing_is_fresh_in_what_is_handed_on(values: list[float]) -> None:
    given = torch.tensor(values)
    assert fresh_values([given], given * 2) is None


def blamed(make: object) -> tuple[Blame, OpTracer]:
    tracer = OpTracer(Scope())
    with tracer:
        result = make()  # type: ignore[operator]
    sink = tracer.writers.get(result)
    assert sink is not None
    found = first_harmful(tracer.trace, [sink])
    assert found is not None
    return found, tracer


HIDDEN = torch.tensor([[False, True], [False, True]])


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        (lambda x: x / torch.tensor([[1.0], [0.0]]), DIVIDE_BY_ZERO),
        (lambda x: x.masked_fill(HIDDEN, INF).sub(2.0).abs().log(), LOG_OF_ZERO),
        (lambda x: (x * 3e38).mul_(-5.0), OVERFLOW),
    ],
)
def test_a_birth_beside_a_mask_is_found_and_its_own_places_are_looked_at(op: object, kind: str) -> None:
    scores = torch.tensor([[1.0, 3.0], [2.0, 4.0]])

    def make() -> torch.Tensor:
        made: torch.Tensor = op(scores.masked_fill(HIDDEN, -INF))  # type: ignore[operator]
        return made.sum()

    found, _ = blamed(make)
    assert found.op.fresh is not None and not found.op.deliberate and found.op.call is not None
    assert mechanism_of(BirthOp(found.op)).kind == kind


def test_zero_times_infinity_beside_nan() -> None:
    given = torch.tensor([NAN, 1.0]).masked_fill(torch.tensor([False, True]), INF)
    made = given * torch.tensor([1.0, 0.0])
    found = fresh_values([given, torch.tensor([1.0, 0.0])], made)
    assert found is not None and found[0] == Fresh(nan=1, nan_of_inf=1)
    tracer = OpTracer(Scope())
    with tracer:
        given * torch.tensor([1.0, 0.0])
    (op,) = tracer.trace.ops.values()
    assert op.makes_nan and op.turns_inf_into_nan and mechanism_of(BirthOp(op)).kind == INF_ARITHMETIC


def test_an_infinity_at_the_end_is_not_the_work_of_nan() -> None:
    label, deviation = torch.tensor([NAN, 1.0, 2.0]), torch.tensor([1.0, 0.0, 1.0])
    found, _ = blamed(lambda: (label / deviation)[1:].clone().sum())
    assert found.outside is None and found.op.name == "aten.div.Tensor" and found.rival is None


def test_nan_from_outside_and_a_birth_are_rivals_until_one_was_lived_with() -> None:
    table, width = torch.tensor([NAN, 0.0, 2.0]), torch.tensor([1.0, 0.0, 1.0])
    found, tracer = blamed(lambda: (table / width).sum())
    assert found.outside is not None and found.rival is not None and found.rival.op.name == "aten.div.Tensor"
    for op in tracer.trace.ops.values():
        op.lived_with = True
    sink = max(tracer.trace.ops)
    again = first_harmful(tracer.trace, [sink])
    assert again is not None and again.outside is None and again.op.name == "aten.div.Tensor"


def test_numbers_in_the_place_of_nan_leave_a_flat_column_flat() -> None:
    table = torch.tensor([[NAN, 1.5, NAN], [2.0, NAN, NAN], [3.0, 1.5, -INF]])
    filled = with_numbers(table)
    assert filled.tolist() == [[2.0, 1.5, 1.5], [2.0, 1.5, 1.5], [3.0, 1.5, -INF]]
    kept = with_numbers(table, torch.isnan(table) & (torch.arange(3) == 0))
    assert bool(torch.isnan(kept[0, 0])) and int(torch.isnan(kept).sum()) == 1
