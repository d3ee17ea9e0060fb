"""`norm_and_verdict` on the CPU: the right norm, and not finite when a gradient is not."""

from __future__ import annotations

import math

import pytest
import torch

from nanwatch.tensors import compiled, latch, norm_and_verdict
from nanwatch.tensors.rows import places_of

pytestmark = pytest.mark.usefixtures("both_ways")

KINDS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def _norm(tensors: list[torch.Tensor]) -> float:
    return torch.cat([t.detach().to(torch.float64).reshape(-1) for t in tensors]).norm().item()


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_the_norm_is_that_of_all_values_together(dtype: torch.dtype) -> None:
    gradients = [torch.randn(size).to(dtype) for size in (1, 31, 4097, 70_001)]
    (norm,) = norm_and_verdict(gradients)
    assert (norm.dtype, norm.dim()) == (torch.float32, 0)
    assert norm.item() == pytest.approx(_norm(gradients), rel=1e-4)


def test_dtypes_and_strides_may_be_mixed() -> None:
    gradients = [torch.randn(40, 30).to(dtype) for dtype in KINDS]
    gradients += [
        torch.randn(8, 3, 5, 5).to(memory_format=torch.channels_last),
        torch.randn(20, 20)[::2, ::3],
    ]
    gradients += [torch.randn(7).to(torch.float8_e5m2), torch.ones(1).expand(50), torch.zeros(0)]
    (norm,) = norm_and_verdict(gradients)
    assert norm.item() == pytest.approx(_norm(gradients), rel=1e-4)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
def test_one_bad_value_spoils_the_norm(dtype: torch.dtype, bad: float) -> None:
    for size in (1, 33, 100_000):
        gradients = [torch.ones(10), torch.ones(size, dtype=dtype), torch.ones(3)]
        gradients[1][size // 2] = bad
        assert not norm_and_verdict(gradients)[0].isfinite()


@pytest.mark.parametrize("size", [4 * 2048, 4 * 2048 + 777])
def test_a_bad_value_is_seen_wherever_it_lies(size: int) -> None:
    """A gradient is read in several places at a time."""
    for place in (*range(0, size, 509), size - 1):
        gradient = torch.ones(size)
        gradient[place] = math.nan
        assert norm_and_verdict([gradient])[0].isnan(), place


@pytest.mark.parametrize("size", [2047, 2048, 4 * 2048, 4 * 2048 + 777])
def test_every_value_counts_once(size: int) -> None:
    gradient = torch.arange(1, size + 1, dtype=torch.float32)
    exact = math.sqrt(size * (size + 1) * (2 * size + 1) / 6)
    assert norm_and_verdict([gradient])[0].item() == pytest.approx(exact, rel=1e-6)


def test_large_float16_gradients_are_no_alarm() -> None:
    assert norm_and_verdict([torch.full((100_000,), 60_000.0, dtype=torch.float16)])[0].isfinite()


def test_squares_beyond_float32_are_no_alarm() -> None:
    assert norm_and_verdict([torch.full((100,), 1e30)])[0].item() == pytest.approx(1e31, rel=1e-5)


def test_a_norm_beyond_float32_is_infinite_and_left_to_be_confirmed() -> None:
    assert norm_and_verdict([torch.full((10_000,), 3e38)])[0].item() == math.inf


def test_sparse_gradients_count() -> None:
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.tensor([3.0, 4.0]), (5,))
    assert norm_and_verdict([sparse])[0].item() == pytest.approx(5.0)
    spoiled = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([math.nan]), (5,))
    assert not norm_and_verdict([torch.ones(3), spoiled])[0].isfinite()


def test_nothing_gives_nothing() -> None:
    assert norm_and_verdict([]) == []
    assert [norm.item() for norm in norm_and_verdict([torch.zeros(0)])] == [0.0]


def test_only_gradients_of_a_gpu_have_a_place_there() -> None:
    library, plain = compiled.library(), torch.ones(3)
    others = (plain, plain.half(), plain[::2], torch.zeros(0), plain.to_sparse(), plain.to("meta"))
    for other in others:
        assert library is None or places_of(library, [plain, other], 0) is None
    assert not latch([plain], torch.tensor(1.0), torch.zeros(3))
