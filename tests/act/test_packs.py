"""Small tensors written together come back one by one, bit for bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nanwatch.act import packs
from nanwatch.act.packs import packed, unpacked

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn)


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@given(
    st.dictionaries(
        st.text(max_size=4),
        st.tuples(st.lists(st.integers(0, 3), max_size=3), st.sampled_from(DTYPES)),
        max_size=8,
    ),
    st.integers(0, 64),
)
def test_what_was_packed_comes_back(wanted: dict[str, tuple[list[int], torch.dtype]], longest: int) -> None:
    tensors = {n: (torch.randn(shape) * 9).to(dtype) for n, (shape, dtype) in wanted.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packs, "LONGEST_BYTES", longest)
        found = unpacked(*packed(tensors))
    assert {n: (t.shape, t.dtype, bits(t)) for n, t in found.items()} == {
        n: (t.shape, t.dtype, bits(t)) for n, t in tensors.items()
    }


def test_a_few_long_ones_instead_of_many() -> None:
    tensors = {f"{i}": torch.randn(8) for i in range(200)} | {f"n{i}": torch.tensor(i) for i in range(200)}
    whole, _ = packed(tensors)
    assert len(whole) == 2


def test_large_ones_and_those_in_another_order_stay_by_themselves() -> None:
    large = torch.zeros(packs.SMALL_BYTES)
    turned = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    whole, contents = packed({"large": large, "turned": turned, "pack 0": torch.ones(1)})
    assert whole["large"] is large and whole["turned"] is turned
    found = unpacked(whole, contents)
    assert set(found) == {"large", "turned", "pack 0"} and found["turned"].stride() == turned.stride()
    assert torch.equal(found["pack 0"], torch.ones(1))
