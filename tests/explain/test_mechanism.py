"""What one op did with its operands: every mechanism, on single ops traced as in a replay."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.mechanism import (
    DIVIDE_BY_ZERO,
    EMPTY,
    INF_ARITHMETIC,
    INHERITED,
    INVALID_DOMAIN,
    LOG_OF_ZERO,
    MASKED_ROW,
    OVERFLOW,
    UNKNOWN,
    Mechanism,
    mechanism_of,
)
from nanwatch.replay.tracer import OpTracer
from nanwatch.watching.module_calls import Scope

Work = Callable[[], object]
INF = float("inf")


def birth_of(work: Work, phase: str = "forward") -> BirthOp:
    """The first op of `work` that makes something non-finite, with its operands."""
    tracer = OpTracer(Scope())
    tracer.phase = phase
    with tracer:
        work()
    for op in tracer.trace.ops.values():
        if op.makes_nan or (op.makes_inf and not op.deliberate):
            return BirthOp(op)
    raise AssertionError("every value is finite")


def mechanism(work: Work) -> Mechanism:
    return mechanism_of(birth_of(work))


def x(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def attention(mask: torch.Tensor) -> torch.Tensor:
    query = torch.randn(1, 1, 2, 4)
    return F.scaled_dot_product_attention(query, query, query, attn_mask=mask)


DIVISIONS: list[tuple[Work, str]] = [
    (lambda: x(1, 2) / x(0, 1), "other"),
    (lambda: x(0, 2) / x(0, 1), "other"),
    (lambda: x(1, 2) / 0, "other"),
    (lambda: 1 / x(0, 1), "self"),
    (lambda: x(1, 2).div_(x(0, 1)), "other"),
    (lambda: x(0, 4).rsqrt(), "self"),
    (lambda: x(0, 4) ** -2, "self"),
    (lambda: x(0, 4) ** -0.5, "self"),
    (lambda: x(3, 4) % x(0, 4), "other"),
    (lambda: torch.fmod(x(3, 4), x(0, 4)), "other"),
    (lambda: torch.addcdiv(x(1, 1), x(1, 1), x(0, 1)), "tensor2"),
    (lambda: torch._foreach_div([x(1), x(1)], [x(2), x(0)]), "other"),
    (lambda: torch._foreach_addcdiv_([x(1), x(1)], [x(1), x(1)], [x(2), x(0)], [0.1, 0.1]), "tensor2"),
    (lambda: torch.var(x(3)), "correction"),
    (lambda: torch.std(x(3, 4).view(2, 1), dim=1), "correction"),
    (lambda: F.layer_norm(torch.ones(2, 3), (3,), eps=0.0), "eps"),
]


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize(("work", "operand"), DIVISIONS)
def test_division_by_zero(work: Work, operand: str) -> None:
    found = mechanism(work)
    assert (found.kind, found.operand, found.value) == (DIVIDE_BY_ZERO, operand, 0.0)


LOGARITHMS: list[tuple[Work, str, float]] = [  # a log of zeros and ones alone is taken for a mask
    (lambda: x(0, 0.3).log(), "self", 0.0),
    (lambda: x(0, 1).log2(), "self", 0.0),
    (lambda: x(0, 1).log10(), "self", 0.0),
    (lambda: x(-1, 1).log1p(), "self", -1.0),
    (lambda: torch.xlogy(x(1, 1), x(0, 1)), "other", 0.0),
    (lambda: torch.logit(x(1, 0.5)), "self", 1.0),
    (lambda: torch.logit(x(0, 0.5)), "self", 0.0),
    (lambda: x(0.3, 0).log_(), "self", 0.0),
]


@pytest.mark.parametrize(("work", "operand", "value"), LOGARITHMS)
def test_log_of_zero(work: Work, operand: str, value: float) -> None:
    found = mechanism(work)

    assert (found.kind, found.operand, found.value) == (LOG_OF_ZERO, operand, value)


DOMAINS: list[tuple[Work, float]] = [
    (lambda: x(-2, 1).sqrt(), -2.0),
    (lambda: x(-2, 1).rsqrt(), -2.0),
    (lambda: x(-2, 1).log(), -2.0),
    (lambda: x(-2, 1).log1p(), -2.0),
    (lambda: x(-2, 1) ** 0.5, -2.0),
    (lambda: x(-2, 1) ** x(1.5, 2), -2.0),
    (lambda: x(1.5, 1).acos(), 1.5),
    (lambda: x(1.5, 1).asin(), 1.5),
    (lambda: x(1.0, 0).atanh(), 1.0),
    (lambda: x(1.0, 0).erfinv(), 1.0),
    (lambda: x(0.5, 2).acosh(), 0.5),
    (lambda: x(0.0, 2).lgamma(), 0.0),
    (lambda: torch.logit(x(1.5, 0.5)), 1.5),
    (lambda: F.batch_norm(torch.randn(2, 2), torch.zeros(2), x(-1, 1)), -1.0),
]


@pytest.mark.parametrize(("work", "value"), DOMAINS)
def test_outside_of_the_domain(work: Work, value: float) -> None:
    found = mechanism(work)
    assert (found.kind, found.value) == (INVALID_DOMAIN, value)


HALF = torch.float16
OVERFLOWS: list[tuple[Work, str]] = [
    (lambda: x(100, 1).exp(), "self"),
    (lambda: x(1000, 1).exp(), "self"),
    (lambda: x(1000, 1).expm1(), "self"),
    (lambda: x(1000, 1).sinh(), "self"),
    (lambda: x(1e30, 1).exp2(), "self"),
    (lambda: x(1e20, 1) ** 2, "self"),
    (lambda: x(-1e20, 1) ** 2, "self"),
    (lambda: x(-300, 1, dtype=HALF) ** 2, "self"),
    (lambda: x(1e20, 1) * x(1e25, 1), "other"),
    (lambda: x(3e38, 1) + x(3e38, 1), "self"),
    (lambda: x(3e38, 3e38).sum(), "self"),
    (lambda: x(1e20, 1e20).prod(), "self"),
    (lambda: x(1e20, 1e20).cumprod(0), "self"),
    (lambda: torch.full((2, 2), 1e20) @ torch.full((2, 2), 1e20), "self"),
    (lambda: x(1, 1, dtype=HALF) * -1e5, "other"),
    (lambda: x(1, 1) / x(1e-42, 1) * 1e9, "other"),
    (lambda: x(40000, 1, dtype=HALF) + x(40000, 1, dtype=HALF), "self"),
    (lambda: x(1e5, 1).half(), "self"),
    (lambda: torch.zeros(2, dtype=HALF).copy_(x(1e5, 1)), "src"),
    (lambda: torch.where(torch.tensor([True, False]), -1e9, x(1, 2, dtype=HALF)), "s"),
    (lambda: torch.linalg.vector_norm(x(1e30, 1e30)), "self"),
    (lambda: F.linear(x(1e20, 1e20), torch.full((1, 2), 1e20)), ""),
    (lambda: torch._foreach_mul([x(1), x(1e20)], [x(1), x(1e25)]), "other"),
    (lambda: x(1000, 1, dtype=torch.float64).exp(), "self"),
]


@pytest.mark.parametrize(("work", "operand"), OVERFLOWS)
def test_out_of_range(work: Work, operand: str) -> None:
    found = mechanism(work)
    assert found.kind == OVERFLOW
    assert not operand or found.operand == operand
    assert found.value is not None and math.isfinite(found.value)


def test_the_operand_of_an_overflow_keeps_its_sign_and_is_the_one_at_the_bad_place() -> None:
    found = mechanism(lambda: x(-1e9, 6e4).half())
    assert found.value == -1e9
    found = mechanism(lambda: x(7, 100).exp())
    assert found.value == 100


MASKED: list[Work] = [
    lambda: torch.full((2, 3), -INF).softmax(-1),
    lambda: torch.full((2, 3), -INF).log_softmax(0),
    lambda: torch.tensor([[0.0, -INF], [1.0, -INF]]).softmax(0),
    lambda: torch.full((2, 3), -INF) - torch.full((2, 1), -INF),
    lambda: torch.full((2, 3), -INF).sub_(torch.full((3,), -INF).max()),
]


@pytest.mark.parametrize("work", MASKED)
def test_a_row_that_is_masked_everywhere(work: Work) -> None:
    assert mechanism(work).kind == MASKED_ROW


def test_the_derivative_of_logsumexp_over_nothing() -> None:
    scores = torch.full((2, 3), -INF, requires_grad=True)
    total = torch.logsumexp(scores, 1)
    found = mechanism(lambda: torch.autograd.grad(total.sum(), scores))
    assert found.kind == MASKED_ROW


INFINITIES: list[Work] = [
    lambda: x(INF, 1) * x(0, 1),
    lambda: x(INF, 1) - x(INF, 1),
    lambda: x(INF, 1) / x(INF, 1),
    lambda: x(INF, 1) + x(-INF, 1),
    lambda: x(INF, 1).softmax(0),
    lambda: x(-INF, INF).sum(),
    lambda: x(INF, 1).sin(),
    lambda: x(INF, -INF)[:, None] - x(INF, -INF)[None, :],
    lambda: attention(torch.tensor([[0.0, INF], [0.0, 0.0]])),
]


@pytest.mark.parametrize("work", INFINITIES)
def test_arithmetic_with_an_infinity_that_was_there(work: Work) -> None:
    found = mechanism(work)
    assert found.kind == INF_ARITHMETIC
    assert found.value is not None and math.isinf(found.value)


def test_a_nan_that_is_handed_on_is_no_arithmetic_with_infinities() -> None:
    tracer = OpTracer(Scope())
    with tracer:
        x(float("nan"), INF) * 2
    op = next(iter(tracer.trace.ops.values()))
    assert mechanism_of(BirthOp(op)).kind == INHERITED


EMPTIES: list[Work] = [
    lambda: torch.zeros(0).mean(),
    lambda: torch.zeros(0, 3).mean(0),
    lambda: torch.zeros(2, 0).mean(1),
    lambda: torch.zeros(0).std(),
]


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("work", EMPTIES)
def test_over_nothing(work: Work) -> None:
    assert mechanism(work).kind == EMPTY


def test_operands_that_were_not_kept_tell_nothing() -> None:
    birth = birth_of(lambda: x(1, 2) / x(0, 1))
    birth.op.call, birth.op.output = None, None
    assert mechanism_of(BirthOp(birth.op)).kind == UNKNOWN


# The same for any values


numbers = st.floats(-1e4, 1e4, width=32).filter(lambda v: abs(v) > 1e-3)


@settings(deadline=None, max_examples=40)
@given(st.lists(numbers, min_size=1, max_size=6), st.data())
def test_any_division_by_zero_is_found_whatever_stands_beside_it(
    values: list[float], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(values)))
    divisor = torch.tensor([*values[:place], 0.0, *values[place:]])
    found = mechanism(lambda: torch.ones_like(divisor) / divisor)
    assert (found.kind, found.value, found.share) == (DIVIDE_BY_ZERO, 0.0, 1.0)


@settings(deadline=None, max_examples=40)
@given(st.floats(300, 1e4), st.integers(2, 5), st.booleans())
def test_a_whole_power_in_half_precision_leaves_the_range_and_not_the_domain(
    size: float, power: int, negative: bool
) -> None:
    base = torch.tensor([-size if negative else size, 1.0]).half()
    birth = birth_of(lambda: base**power)
    assert mechanism_of(birth).kind == OVERFLOW
    assert birth.narrow and birth.finite_in_float32 is True and birth.wide is True


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.integers(2, 5), st.integers(0, 1), st.data())
def test_a_masked_row_is_found_in_any_row_of_any_dim(
    rows: int, columns: int, dim: int, data: st.DataObject
) -> None:
    scores = torch.randn(rows, columns)
    hidden = data.draw(st.integers(0, rows - 1))
    scores[hidden] = -INF
    turned = scores.t().contiguous() if dim == 0 else scores
    found = mechanism(lambda: turned.softmax(dim))
    assert (found.kind, found.operand) == (MASKED_ROW, "self")


@settings(deadline=None, max_examples=40)
@given(st.floats(89, 700))
def test_exp_that_float64_could_hold(value: float) -> None:
    birth = birth_of(lambda: torch.tensor([value]).exp())
    assert mechanism_of(birth).kind == OVERFLOW
    assert birth.wide is True and birth.finite_in_float32 is False


@settings(deadline=None, max_examples=40)
@given(st.sampled_from([torch.float16, torch.bfloat16]), st.floats(1e3, 1e30))
def test_bfloat16_has_the_range_of_float32(dtype: torch.dtype, value: float) -> None:
    given_value = torch.tensor([value])
    if dtype is torch.bfloat16 or value < 65520:  # what lies below rounds to the largest float16
        assert bool(torch.isfinite(given_value.to(dtype)).all())
        return
    birth = birth_of(lambda: given_value.to(dtype))
    assert dtype is torch.float16
    assert (mechanism_of(birth).kind, birth.narrow, birth.finite_in_float32) == (OVERFLOW, True, True)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4), st.integers(0, 3))
def test_of_a_list_the_tensor_that_went_bad_is_looked_at(count: int, place: int) -> None:
    place = min(place, count - 1)
    divisors = [torch.tensor([float(i != place), 2.0]) for i in range(count)]
    birth = birth_of(lambda: torch._foreach_div([torch.ones(2)] * count, divisors))
    divisor = birth.tensor("other")
    assert divisor is not None and torch.equal(divisor, divisors[place])
    assert mechanism_of(birth).share == 1.0


# Facts about the birth op


def test_the_op_made_again_writes_into_nothing_of_the_record() -> None:
    weight = x(1, 1)
    birth = birth_of(lambda: weight.addcdiv_(x(1, 1), x(0, 1)))
    made = birth.again(lambda name, t: t + 1 if name == "tensor2" else t)
    assert made is not None and all(bool(torch.isfinite(t).all()) for t in made)
    assert birth.at_bad("tensor2") is not None and float(birth.tensor("tensor2")[0]) == 0.0  # type: ignore[index]


def test_values_of_an_operand_that_is_spread_over_the_output() -> None:
    birth = birth_of(lambda: torch.ones(2, 3) / x(1, 0, 2))
    values = birth.at_bad("other")
    assert values is not None and values.tolist() == [0.0, 0.0]
    assert birth.number("other") is None


def test_an_op_that_cannot_be_made_again_has_no_wide_form() -> None:
    birth = birth_of(lambda: x(1, 2) / x(0, 1))
    birth.op.call = None
    assert BirthOp(birth.op).wide is None
