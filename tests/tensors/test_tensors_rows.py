"""Gradients read in one call: the same as reading each of them, or no answer at all."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from nanwatch.tensors import compiled
from nanwatch.tensors import rows as rows_module
from nanwatch.tensors.cpu import TYPE_NUMBERS
from nanwatch.tensors.rows import PYTHON, read_at_once

pytestmark = pytest.mark.skipif(
    not compiled.wait_until_ready() or PYTHON is None, reason="no compiler, or an older torch"
)

SHAPES = st.lists(st.integers(0, 4), max_size=4)


@pytest.fixture(params=["high", "low"], autouse=True)
def where_memory_is(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_heap_is_low", request.param == "low")


def rows(*tensors: Tensor, numbers: list[Tensor] | None = None) -> Any:
    return read_at_once(compiled.library(), list(tensors), numbers or [])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(SHAPES, st.sampled_from(list(TYPE_NUMBERS))), min_size=1, max_size=6),
    st.lists(st.tuples(st.floats(width=16), st.sampled_from(list(TYPE_NUMBERS))), max_size=3),
)
def test_plain_tensors_are_read_as_they_are(
    wanted: list[tuple[list[int], torch.dtype]], numbers: list[tuple[float, torch.dtype]]
) -> None:
    tensors = [torch.randn(shape).to(dtype) for shape, dtype in wanted]
    values = [torch.tensor(value, dtype=dtype) for value, dtype in numbers]
    found = rows(*tensors, numbers=values)
    assert found is not None
    assert found[:-1] == pytest.approx([v.item() for v in values], rel=0, abs=0, nan_ok=True)
    assert found[-1] == pytest.approx(sum(float(t.double().square().sum()) for t in tensors), rel=1e-4)


def test_one_bad_value_is_enough_and_a_number_of_many_values_is_none() -> None:
    big = torch.zeros(2_000_000)
    assert rows(big, torch.ones(3)) == [3.0]
    big[1_999_999] = torch.nan
    assert math.isnan(rows(torch.ones(3), big)[-1])
    assert rows(torch.ones(3), numbers=[torch.ones(2)]) is None
    assert rows(torch.ones(3), numbers=[torch.tensor(1)]) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SHAPES, st.randoms(use_true_random=False))
def test_rows_only_of_what_lies_without_gaps(shape: list[int], random: Any) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)
    tensor = torch.zeros(shape).permute(order)
    assert (rows(tensor) is not None) == tensor.is_contiguous()


class Mine(Tensor):
    pass


def freed() -> Tensor:
    tensor = torch.zeros(8)
    part = tensor[4:]
    tensor.untyped_storage().resize_(0)
    return part


ODD = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "complex": lambda: torch.zeros(3, dtype=torch.complex64),
    "whole numbers": lambda: torch.arange(3),
    "float8": lambda: torch.zeros(3).to(torch.float8_e4m3fn),
    "expanded": lambda: torch.zeros(1, 3).expand(4, 3),
    "without memory": freed,
    "meta": lambda: torch.zeros(3, device="meta"),
    "a subclass": lambda: torch.zeros(3).as_subclass(Mine),
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged),
}


@pytest.mark.parametrize("kind", ODD)
def test_no_answer_for_what_needs_a_closer_look(kind: str) -> None:
    assert rows(torch.zeros(2), ODD[kind]()) is None
    assert rows(ODD[kind]()) is None


def test_a_part_of_another_is_read_where_its_address_tells_that_it_has_memory() -> None:
    part = torch.arange(8.0)[4:]
    assert rows(part) in ([4.0**2 + 5.0**2 + 6.0**2 + 7.0**2], None)
    assert (rows(part) is None) == rows_module._heap_is_low


def test_parameters_are_plain_and_no_tensors_are_no_rows() -> None:
    assert rows(nn.Parameter(torch.zeros(3))) is not None
    assert rows() is None


def test_no_answer_inside_a_transform_and_none_that_a_mode_could_see() -> None:
    answers: list[Any] = []

    def inside(x: Tensor) -> Tensor:
        answers.append(rows(x))
        return x

    torch.func.vmap(inside)(torch.zeros(3, 4))

    class Nosy(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(function)

    tensor = torch.zeros(3)
    with Nosy():
        answers.append(rows(tensor))
    assert answers == [None, None]
