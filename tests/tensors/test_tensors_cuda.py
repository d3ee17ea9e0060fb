"""The CUDA kernels: same numbers, no wait, inside graphs and compiled code."""

from __future__ import annotations

import math

import pytest
import torch

from nanwatch.tensors import (
    compiled,
    is_finite,
    latch,
    many_numbers,
    norm_and_verdict,
    numbers,
    standing_orders,
    statistics,
    wait_until_ready,
)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
OTHERS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.int32, torch.uint8, torch.bool, torch.complex64]
SIZES = [0, 1, 7, 1000, 8192, 100_003, 5_000_001]


@pytest.mark.parametrize("dtype", FLOATS + OTHERS, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_numbers_are_those_of_the_naive_reference(dtype: torch.dtype, size: int, check) -> None:
    t = (torch.randn(size, device="cuda") * 3).to(dtype)
    check(numbers(t), t)
    assert is_finite(t) == numbers(t).finite


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
def test_planted_values_are_counted(dtype: torch.dtype, bad: float, check) -> None:
    t = torch.randn(3_000_001, device="cuda").to(dtype)
    t[[0, 17, 1_500_000, 3_000_000]] = bad
    check(numbers(t), t)
    assert not is_finite(t)
    assert not norm_and_verdict([torch.ones(5, device="cuda"), t])[0].isfinite()


@pytest.mark.parametrize("value", [1e30, 1e-30, 0.0])
def test_float32_squares_may_neither_overflow_nor_vanish(value: float, check) -> None:
    t = torch.full((2_000_000,), value, device="cuda")
    check(numbers(t), t)


def test_views_are_read_right(check) -> None:
    t = torch.randn(300, 400, device="cuda")
    for view in (t.t(), t[::2, 1:], t[:, 3], t.view(-1)[1:], t[0].expand(50, 400)):
        check(numbers(view), view)
    huge = torch.tensor([1.0, math.inf], device="cuda").expand(10**12, 2)
    assert numbers(huge).posinf == 10**12


def test_many_are_read_with_one_wait() -> None:
    tensors = [torch.randn(n, device="cuda") for n in (3, 5_000)] + [torch.tensor([math.nan])]
    assert many_numbers(tensors) == [numbers(t) for t in tensors]


def test_nothing_waits_for_the_device() -> None:
    gradients = [torch.randn(5_000, device="cuda") for _ in range(5)]
    loss, kept = torch.ones((), device="cuda"), torch.zeros(3, device="cuda")
    assert wait_until_ready()
    statistics(gradients[0]), norm_and_verdict(gradients), latch(gradients, loss, kept)
    torch.cuda.set_sync_debug_mode("error")
    try:
        statistics(gradients[0]), norm_and_verdict(gradients)
        assert latch(gradients, loss, kept)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_norm_is_that_of_all_values_together() -> None:
    sizes = [1, 31, 4_096, 70_001, 2_000_000] * 7
    gradients = [torch.randn(size, device="cuda").to(FLOATS[i % 4]) for i, size in enumerate(sizes)]
    gradients += [torch.randn(8, 3, 5, 5, device="cuda").to(memory_format=torch.channels_last)]
    gradients += [torch.randn(40, 40, device="cuda")[::2, 1:], torch.randn(1_001, device="cuda")[1:]]
    expected = torch.cat([g.double().reshape(-1) for g in gradients]).norm().item()
    for _ in range(2):
        assert norm_and_verdict(gradients)[0].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_verdict_is_kept_on_the_device_until_it_is_taken_back(dtype: torch.dtype) -> None:
    good = [torch.ones(size, device="cuda", dtype=dtype) for size in (3, 70_001, 200_000)]
    bad = [good[0], good[1].clone(), good[2]]
    bad[1][70_000] = math.inf
    loss, kept = torch.tensor(2.5, device="cuda"), torch.zeros(3, device="cuda")
    norm = pytest.approx(math.sqrt(270_004), rel=1e-5)
    assert wait_until_ready()
    for _ in range(40):  # more often than there is room for
        assert _latched(good, loss, kept) == [0.0, 2.5, norm]
    assert _latched(bad, loss, kept) == [1.0, 2.5, math.inf]
    assert _latched(good, loss, kept) == [1.0, 2.5, norm]
    kept[0] = 0
    bad_loss = torch.tensor(math.nan, device="cuda")
    assert _latched(good, bad_loss, kept) == [1.0, pytest.approx(math.nan, nan_ok=True), norm]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_from_the_second_time_on_c_asks_for_the_verdict(dtype: torch.dtype) -> None:
    assert wait_until_ready()
    kept, asked = torch.zeros(3, device="cuda"), []
    for n in range(4):
        gradients = [torch.full((size,), 2.0, device="cuda") for size in (9, 4_000 + n // 3)]
        loss = torch.tensor(float(n), device="cuda", dtype=dtype)
        before = standing_orders.answer_for(compiled.library(), gradients, loss, kept)
        asked.append(before is not None)
        norm = pytest.approx(2 * math.sqrt(4_009 + n // 3), rel=1e-6)
        assert _latched(gradients, loss, kept) == [0.0, float(n), norm]
    assert asked == [False, True, True, False]  # the last are of other sizes


def _latched(gradients: list[torch.Tensor], loss: torch.Tensor, kept: torch.Tensor) -> list[float]:
    """On the device and as it was answered, which must be the same."""
    answer = latch(gradients, loss, kept)
    assert answer is not None
    answer.ready.synchronize()
    assert torch.equal(answer.values.view(torch.int32), kept.cpu().view(torch.int32))
    return answer.values.tolist()


def test_answers_are_there_while_others_are_asked_for() -> None:
    assert wait_until_ready()
    kept = torch.zeros(3, device="cuda")
    for _ in range(3):
        asked = [
            latch([torch.full((300,), 2.0, device="cuda")], torch.tensor(n, device="cuda"), kept)
            for n in (1.0, 2.0, 3.0, 4.0)
        ]
        torch.cuda.synchronize()
        assert [answer.values[1].item() for answer in asked if answer is not None] == [1.0, 2.0, 3.0, 4.0]


def test_norms_of_many_models_in_turn_are_their_own() -> None:
    models = [[torch.full((size,), 2.0, device="cuda") for size in (5, 900 + n)] for n in range(40)]
    for _ in range(2):
        found = [norm_and_verdict(gradients)[0] for gradients in models]
        for n, norm in enumerate(found):
            assert norm.item() == pytest.approx(2 * math.sqrt(905 + n), rel=1e-6)


def test_a_verdict_is_left_to_others_where_there_is_more_than_plain_floats_of_one_type() -> None:
    assert wait_until_ready()
    one, kept = torch.ones(40, 40, device="cuda"), torch.zeros(3, device="cuda")
    loss = torch.tensor(1.0, device="cuda")
    sparse = torch.eye(3, device="cuda").to_sparse()
    empty = torch.ones(0, device="cuda")
    for other in (one.half(), one.cpu(), one[::2, 1:], sparse, empty, one.int(), one.to(torch.complex64)):
        assert not latch([one, other], loss, kept)
    kind = type("Kind", (torch.Tensor,), {})
    for other_loss in (loss.double(), loss.cpu(), torch.ones(2, device="cuda"), loss.as_subclass(kind)):
        assert not latch([one], other_loss, kept)
    assert not latch([], loss, kept)
    assert kept.tolist() == [0.0, 0.0, 0.0]
    assert latch([one, one.view(-1)[1:]], loss, kept)  # not aligned
    assert kept[2].item() == pytest.approx(math.sqrt(3199), rel=1e-6)


def test_a_captured_graph_measures_what_is_there_when_it_is_replayed() -> None:
    x = torch.randn(100_000, device="cuda", dtype=torch.bfloat16)
    gradients = [torch.randn(1_000, device="cuda") for _ in range(3)]
    statistics(x), norm_and_verdict(gradients)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        seven, (norm,) = statistics(x), norm_and_verdict(gradients)
    for nans in (0, 3):
        x[:nans] = math.nan
        gradients[1][:nans] = math.nan
        graph.replay()
        assert seven[0].item() == nans
        assert norm.isfinite().item() == (nans == 0)


def test_numbers_asked_for_during_capture_do_not_spoil_it() -> None:
    x, graph = torch.ones(10, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
        assert numbers(y).min is None
        assert is_finite(y)
    graph.replay()
    assert numbers(y).max == 2.0


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_the_op_is_one_node_of_a_full_graph(mode: str) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.nanwatch.statistics(torch.nn.functional.gelu(x) * 2)

    compiled = torch.compile(step, fullgraph=True, mode=mode)
    x = torch.randn(10_000, device="cuda")
    for _ in range(3):
        seven = compiled(x).clone()
    assert torch.allclose(seven, step(x), rtol=1e-4)


def test_autocast_and_autograd_are_not_disturbed() -> None:
    t = torch.full((1_000,), 300.0, device="cuda", dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda", torch.float16):
        assert numbers(t).max == 300.0 and is_finite(t)
        norm = norm_and_verdict([t])[0]
    assert norm.item() == pytest.approx(300 * math.sqrt(1_000), rel=1e-3) and not norm.requires_grad
