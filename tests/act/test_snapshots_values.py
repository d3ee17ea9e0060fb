"""Values of a state dict, taken apart, through JSON, and put together again: every bit is the same."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from typing import Any

import numpy
import torch
from hypothesis import given
from hypothesis import strategies as st
from snapshot_trainings import assert_same

from nanwatch.act.plain_values import Putter, Taken

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64, torch.uint8)


def tensor(shape: list[int], dtype: torch.dtype, turned: bool) -> torch.Tensor:
    made = torch.arange(2.0 + torch.Size(shape).numel())[2:].reshape(shape).to(dtype)
    return made.permute(tuple(reversed(range(len(shape))))) if turned else made


tensors = st.builds(tensor, st.lists(st.integers(0, 3), max_size=3), st.sampled_from(DTYPES), st.booleans())
keys = st.one_of(st.text(max_size=4), st.integers(-3, 99), st.tuples(st.integers(0, 3), st.text(max_size=2)))
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.frozensets(st.integers(0, 9), max_size=3).map(set),
    st.sampled_from(
        [torch.float16, torch.device("cpu"), torch.Size([2, 3]), numpy.float32(0.1), numpy.int8(-3)]
    ),
    st.lists(st.floats(allow_nan=False), max_size=3).map(numpy.array),
    tensors,
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
        st.dictionaries(keys, st.integers(0, 5), max_size=3).map(Counter),
    ),
    max_leaves=8,
)


def there_and_back(value: Any, **options: Any) -> Any:
    taken = Taken()
    outline = json.loads(json.dumps(taken.outline(value, "value")))
    assert taken.left_out == []
    taken.copy()
    return Putter(taken.tensors).value(outline, **options)


@given(values)
def test_every_value_comes_back(value: Any) -> None:
    assert_same(value, there_and_back(value))


@given(values, values)
def test_whatever_stands_in_its_place_now(value: Any, now: Any) -> None:
    assert_same(value, there_and_back(value, current=now))


@given(values)
def test_what_comes_back_shares_no_memory_with_the_copy(value: Any) -> None:
    taken = Taken()
    outline = taken.outline(value, "value")
    taken.copy()
    ones = [t for t in _tensors_in(Putter(taken.tensors).value(outline)) if t.numel()]
    for tensor in ones:
        tensor.zero_()
    assert_same(value, Putter(taken.tensors).value(outline))


def _tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in inner for tensor in _tensors_in(item)]
