"""Where gradients lie, asked in one call: the same as asking each of them, or no answer at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from nanwatch.tensors import compiled
from nanwatch.tensors.cpu import TYPE_NUMBERS
from nanwatch.tensors.rows import DESCRIBE, rows_of

pytestmark = pytest.mark.skipif(
    not compiled.wait_until_ready() or DESCRIBE is None, reason="no compiler, or an older torch"
)

SHAPES = st.lists(st.integers(0, 4), max_size=4)


def rows(*tensors: Tensor) -> Any:
    return rows_of(compiled.library(), list(tensors))


@given(st.lists(st.tuples(SHAPES, st.sampled_from(list(TYPE_NUMBERS))), min_size=1, max_size=6))
def test_plain_tensors_are_described_as_they_are(wanted: list[tuple[list[int], torch.dtype]]) -> None:
    tensors = [torch.zeros(shape, dtype=dtype) for shape, dtype in wanted]
    found = rows(*tensors)
    assert found is not None
    assert list(found.counts) == [t.numel() for t in tensors]
    assert list(found.types) == [TYPE_NUMBERS[t.dtype] for t in tensors]
    assert [a for a, t in zip(found.addresses, tensors, strict=True) if t.numel()] == [
        t.data_ptr() for t in tensors if t.numel()
    ]


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
    "a part of another": lambda: torch.zeros(8)[4:],
    "without memory": freed,
    "meta": lambda: torch.zeros(3, device="meta"),
    "a subclass": lambda: torch.zeros(3).as_subclass(Mine),
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged),
}


@pytest.mark.parametrize("kind", ODD)
def test_no_answer_for_what_needs_a_closer_look(kind: str) -> None:
    assert rows(torch.zeros(2), ODD[kind]()) is None
    assert rows(ODD[kind]()) is None


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
