"""`numbers` against the naive reference, for every dtype, shape, stride and planted value."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nanwatch.tensors import is_finite, many_numbers, numbers, statistics

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
EIGHT_BITS = [
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
]
COMPLEX = [torch.complex64, torch.complex128]
BAD = [math.nan, math.inf, -math.inf]
SIZES = [0, 1, 2, 3, 31, 32, 33, 2047, 2048, 2049, 65535, 65536, 65537, 300_001]

pytestmark = pytest.mark.usefixtures("both_ways")


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(FLOATS + EIGHT_BITS + COMPLEX))
    shape = draw(st.lists(st.integers(0, 9), max_size=4)) + draw(st.sampled_from([[], [40], [700]]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    scale = draw(st.sampled_from([1.0, 1e-3, 100.0, 1e-25, 1e25]))
    part = torch.complex128 if dtype.is_complex else torch.float64
    t = torch.randn(shape, generator=generator, dtype=part) * scale
    for bad in draw(st.lists(st.sampled_from(BAD), max_size=4)):
        if t.numel():
            t.view(-1)[draw(st.integers(0, t.numel() - 1))] = bad
    return draw(st.sampled_from(VIEWS))(t.to(dtype))


def _transposed(t: torch.Tensor) -> torch.Tensor:
    return t.permute(tuple(reversed(range(t.dim()))))


def _every_other(t: torch.Tensor) -> torch.Tensor:
    return t[..., ::2] if t.dim() else t


def _expanded(t: torch.Tensor) -> torch.Tensor:
    return t.unsqueeze(-1).expand(*t.shape, 3)


def _offset(t: torch.Tensor) -> torch.Tensor:
    return t[1:] if t.dim() and t.shape[0] else t


VIEWS = [lambda t: t, _transposed, _every_other, _expanded, _offset]


@given(t=tensors())
@settings(max_examples=150, deadline=None)
def test_numbers_are_those_of_the_naive_reference(t: torch.Tensor, check) -> None:
    measured = numbers(t, "x")
    check(measured, t)
    assert (measured.shape, measured.name, measured.device) == (tuple(t.shape), "x", "cpu")
    assert measured.dtype == str(t.dtype).removeprefix("torch.")
    assert is_finite(t) == measured.finite


@pytest.mark.parametrize("dtype", FLOATS + EIGHT_BITS, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_every_length_is_counted_to_its_last_value(dtype: torch.dtype, size: int, check) -> None:
    t = torch.randn(size).to(dtype)
    check(numbers(t), t)
    assert is_finite(t) == numbers(t).finite


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("bad", BAD, ids=str)
@pytest.mark.parametrize("size", [1, 33, 2049, 70_000, 1_000_003])
def test_one_bad_value_is_found_wherever_it_stands(dtype: torch.dtype, bad: float, size: int, check) -> None:
    for place in {0, size // 2, size - 1}:
        t = torch.ones(size, dtype=dtype)
        t[place] = bad
        check(numbers(t), t)
        assert not is_finite(t)


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_a_tensor_without_a_finite_value_has_no_extremes(bad: float) -> None:
    measured = numbers(torch.full((70_000,), bad))
    assert (measured.min, measured.max, measured.mean, measured.norm) == (None, None, None, None)
    assert measured.nan + measured.posinf + measured.neginf == 70_000


@pytest.mark.parametrize("value", [1e30, 3e38, 1e-30, 1e-44])
def test_float32_squares_may_neither_overflow_nor_vanish(value: float, check) -> None:
    t = torch.full((100_000,), value)
    check(numbers(t), t)
    assert is_finite(t)


@pytest.mark.parametrize("value", [1e200, 1e307, 1e-200, 1e-300])
def test_float64_squares_may_neither_overflow_nor_vanish(value: float, check) -> None:
    t = torch.full((1_000,), value, dtype=torch.float64)
    check(numbers(t), t)
    t[7] = math.nan
    check(numbers(t), t)


INTEGERS = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_whole_numbers_are_finite_and_have_extremes(dtype: torch.dtype, check) -> None:
    t = torch.randint(0, 2 if dtype is torch.bool else 100, (50, 70)).to(dtype)
    check(numbers(t), t)
    check(numbers(t.t()[::3]), t.t()[::3])
    assert is_finite(t)


def test_a_huge_expand_is_never_materialised() -> None:
    t = torch.tensor([1.0, math.inf]).expand(10**12, 2)
    measured = numbers(t)
    assert (measured.count, measured.posinf, measured.mean) == (2 * 10**12, 10**12, 1.0)
    assert not is_finite(t)


def test_a_complex_value_is_nan_before_it_is_infinite(check) -> None:
    t = torch.tensor([complex(math.nan, math.inf), complex(0, -math.inf), 3 + 4j])
    measured = numbers(t)
    assert (measured.nan, measured.posinf, measured.neginf) == (1, 1, 0)
    assert (measured.min, measured.max, measured.norm) == (5.0, 5.0, 5.0)


def test_conjugated_and_negated_views_are_read_right(check) -> None:
    t = torch.randn(300, dtype=torch.complex64)
    check(numbers(t.conj()), t.conj())
    negated = t.conj().imag
    assert negated.is_neg()
    check(numbers(negated), negated)
    check(numbers(torch._neg_view(torch.arange(5.0))), -torch.arange(5.0))


def test_many_numbers_are_the_numbers_of_each(check) -> None:
    many = [
        torch.randn(3),
        torch.tensor([math.nan]),
        torch.arange(4),
        torch.empty(2, device="meta"),
        torch.ones(()),
    ]
    measured = many_numbers(many, ["a", "b", "c", "d", "e"])
    assert [m.name for m in measured] == ["a", "b", "c", "d", "e"]
    assert measured == [numbers(t, m.name) for t, m in zip(many, measured, strict=True)]
    assert many_numbers([]) == []


@given(t=tensors())
@settings(max_examples=40, deadline=None)
def test_the_op_gives_the_same_seven_numbers(t: torch.Tensor) -> None:
    nan, posinf, neginf, lo, hi, _total, squares = statistics(t).tolist()
    measured = numbers(t)
    assert (nan, posinf, neginf) == (measured.nan, measured.posinf, measured.neginf)
    if measured.norm is None:
        assert lo > hi and squares == 0
    else:
        assert (lo, hi) == (measured.min, measured.max)


def test_the_answer_does_not_depend_on_the_number_of_threads(both_ways: str) -> None:
    if both_ways == "torch":
        pytest.skip("true of the compiled kernels only")
    t = torch.randn(1_000_003)
    before, threads = numbers(t), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert numbers(t) == before
    finally:
        torch.set_num_threads(threads)
