"""The same blocks on a GPU: every dtype, autocast, and a device that is still there after a bad row."""

from __future__ import annotations

import pytest
import test_stable_everywhere as everywhere
import torch
from stable_checks import DTYPES, HALVES, NAN, value_and_gradients

from nanwatch import stable

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def masks_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everywhere, "MASK", everywhere.MASK.cuda())
    monkeypatch.setattr(everywhere, "LABELS", everywhere.LABELS.cuda())


def on_the_gpu(name: str, dtype: torch.dtype):
    block, inputs = everywhere.tensors(name, dtype)
    return block, [t.cuda() for t in inputs]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", everywhere.BLOCKS)
def test_finite_and_near_float64(name: str, dtype: torch.dtype) -> None:
    block, inputs = on_the_gpu(name, dtype)
    value, gradients = value_and_gradients(block, *inputs)
    assert value.dtype == dtype and value.isfinite().all()
    assert all(g.isfinite().all() for g in gradients)
    if name in ("exp", "log_snr") or dtype in HALVES:  # their ends depend on the dtype
        return
    wide, wide_gradients = value_and_gradients(block, *(t.double() for t in inputs))
    ordinary = wide.abs() < 100
    assert torch.allclose(value.double()[ordinary], wide[ordinary], rtol=1e-5, atol=1e-6)
    assert len(gradients) == len(wide_gradients)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", sorted({*everywhere.BLOCKS} - {"attention"}))
def test_autocast_changes_nothing(name: str, dtype: torch.dtype) -> None:
    for given_dtype in (torch.float32, dtype):
        block, inputs = on_the_gpu(name, given_dtype)
        expected = block(*inputs)
        with torch.autocast("cuda", dtype):
            value, gradients = value_and_gradients(block, *inputs)
        assert value.dtype == expected.dtype
        assert torch.allclose(value, expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)
        assert all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_with_a_blind_query_and_padded_keys(dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(2, 4, 64, 32, device="cuda").to(dtype) for _ in range(3))
    padding = torch.arange(64, device="cuda") < torch.tensor([20, 0], device="cuda")[:, None, None, None]
    k[0, :, 20:] = NAN
    v[0, :, 20:] = NAN
    value, gradients = value_and_gradients(lambda *t: stable.attention(*t, padding), q, k, v)
    assert value.isfinite().all() and (value[1] == 0).all()
    assert all(g.isfinite().all() and (g[1] == 0).all() for g in gradients)


def test_a_bad_row_does_not_end_the_device() -> None:
    rows = torch.tensor([[0.5, 0.5], [NAN, 1.0]], device="cuda")
    with pytest.raises(stable.UnsoundProbabilitiesError, match="1 of 2 rows"):
        stable.sample(rows)
    with pytest.warns(RuntimeWarning):
        assert stable.sample(rows, repair=True)[1] == 1
    assert torch.ones(2, device="cuda").sum() == 2


def test_norms_where_squares_overflow() -> None:
    x = torch.tensor([[1e20, 2e20, -1e20, 5e19]], device="cuda")
    true = torch.nn.functional.layer_norm(x.double(), (4,))
    assert torch.allclose(stable.layer_norm(x, (4,)).double(), true, atol=1e-6)
    assert torch.allclose(stable.norm(x).double(), x.double().norm(dim=-1), rtol=1e-6)
    assert torch.allclose(stable.std(x, -1).double(), x.double().std(-1), rtol=1e-6)


def test_a_schedule_follows_its_samples_to_the_gpu() -> None:
    schedule = stable.cosine_schedule(100)
    clean, noise = torch.randn(2, 3, 8, device="cuda").half()
    noisy = schedule.add_noise(clean, noise, torch.tensor([0, 50, 99], device="cuda"))
    assert noisy.is_cuda and noisy.isfinite().all()
