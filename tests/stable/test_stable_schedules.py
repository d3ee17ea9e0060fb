"""Noise schedules against their formulas in float64, and at both ends."""

from __future__ import annotations

import math

import pytest
import torch
from stable_checks import (
    DTYPES,
    HALVES,
    NAN,
    all_finite,
    assert_finite,
    assert_is_plain_where_finite,
    assert_near_float64,
    gradcheck,
    row,
    value_and_gradients,
)
from torch import Tensor

from nanwatch import stable

SCHEDULES = [stable.linear_schedule(1000), stable.cosine_schedule(1000)]


def plain_snr(a: Tensor) -> Tensor:
    return a / (1 - a)


def plain_log_snr(a: Tensor) -> Tensor:
    return torch.log(a) - torch.log(1 - a)


def test_the_betas_are_those_of_the_papers() -> None:
    assert torch.equal(stable.linear_betas(1000), torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64))
    f = [math.cos((i / 100 + 0.008) / 1.008 * math.pi / 2) ** 2 for i in range(101)]
    expected = [min(1 - f[i + 1] / f[i], 0.999) for i in range(100)]
    assert stable.cosine_betas(100).tolist() == pytest.approx(expected, rel=1e-12)
    assert stable.cosine_betas(100).amax() == 0.999


@pytest.mark.parametrize(
    "betas", [stable.linear_betas(1000), stable.cosine_betas(1000), stable.cosine_betas(4000)]
)
def test_alphas_cumprod_is_the_plain_product(betas: Tensor) -> None:
    assert torch.equal(stable.alphas_cumprod(betas), torch.cumprod(1 - betas, 0))


def test_alphas_cumprod_at_both_ends() -> None:
    betas = torch.tensor([0.0, 0.5, 1.0])
    plain = torch.cumprod(1 - betas, 0)
    assert plain_log_snr(plain).isinf().tolist() == [True, False, True]
    bounded = stable.alphas_cumprod(betas).float()
    assert (bounded > 0).all() and (bounded < 1).all() and bounded[1] == 0.5
    assert plain_log_snr(bounded).isfinite().all() and (1 / bounded.sqrt()).isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_snr_at_both_ends(dtype: torch.dtype) -> None:
    a = row(1.0, 0.99999999 if dtype in HALVES else 0.9, 0.5, 0.01, 0.0, dtype=dtype)
    assert not all_finite(plain_snr, a) and not all_finite(plain_log_snr, a)
    for block, plain in ((stable.snr, plain_snr), (stable.log_snr, plain_log_snr)):
        assert_finite(block, a)
        assert_near_float64(block, plain, a[2:4])
    assert stable.snr(a)[-1] == 0 and stable.log_snr(a).exp().isfinite().all()
    assert torch.allclose(stable.log_snr(a[:4]), stable.snr(a[:4]).log(), rtol=0.02)


def test_snr_is_the_plain_one() -> None:
    a = SCHEDULES[0].alphas_cumprod
    assert_is_plain_where_finite(stable.snr, plain_snr, a)
    assert_is_plain_where_finite(stable.log_snr, plain_log_snr, a, rtol=2e-3, atol=0.0)
    assert_near_float64(stable.log_snr, plain_log_snr, a[100:])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_there_and_back(schedule: stable.NoiseSchedule, dtype: torch.dtype) -> None:
    source = torch.Generator().manual_seed(0)
    clean, noise = (torch.randn(3, 2, 4, generator=source).to(dtype) for _ in range(2))
    t = torch.tensor([0, 400, 999])
    noisy = schedule.add_noise(clean, noise, t)
    a = schedule.alphas_cumprod[t].double()[:, None, None]
    reference = lambda c, n: a.sqrt() * c.double() + (1 - a).sqrt() * n.double()  # noqa: E731
    assert_near_float64(lambda c, n: schedule.add_noise(c, n, t), reference, clean, noise)
    velocity = lambda c, n: a.sqrt() * n.double() - (1 - a).sqrt() * c.double()  # noqa: E731
    assert_near_float64(lambda c, n: schedule.velocity(c, n, t), velocity, clean, noise)
    back = schedule.clean_from_noise(noisy, noise, t)
    assert back.dtype == dtype and back.isfinite().all()
    assert torch.allclose(back[:1].double(), clean[:1].double(), atol=8 * torch.finfo(dtype).eps)
    assert schedule.clean_from_noise(noisy, -noise, t, bound=1.0).abs().amax() <= 1


def test_the_way_back_from_pure_noise_in_float16() -> None:
    schedule = stable.NoiseSchedule(stable.alphas_cumprod(torch.tensor([1e-4, 1.0])).float())
    noisy, noise, t = torch.ones(1, 2).half(), torch.full((1, 2), -1.0).half(), torch.tensor([1])
    plain = torch.cumprod(1 - torch.tensor([1e-4, 1.0]), 0)[1]
    assert not all_finite(lambda x: (x - (1 - plain).sqrt() * noise) / plain.sqrt(), noisy)
    assert_finite(lambda x, n: schedule.clean_from_noise(x, n, t), noisy, noise)
    assert schedule.clean_from_noise(noisy * NAN, noise, t).isnan().all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_weights_and_variances(schedule: stable.NoiseSchedule) -> None:
    t = torch.arange(1000)
    ratio = schedule.snr(t)
    assert ratio.isfinite().all() and schedule.log_snr(t).isfinite().all()
    assert torch.allclose(schedule.min_snr_weight(t), torch.minimum(ratio, torch.tensor(5.0)) / ratio)
    assert schedule.min_snr_weight(t, predicts="clean").amax() == 5
    assert torch.allclose(schedule.min_snr_weight(t, predicts="velocity"), ratio.clamp(max=5) / (ratio + 1))
    a = schedule.alphas_cumprod.double()
    before = torch.cat([torch.ones(1, dtype=torch.float64), a[:-1]])
    variance = (1 - a / before) * (1 - before) / (1 - a)
    assert variance[0] == 0 and variance.log()[0].isinf(), "the plain one"
    log = schedule.posterior_log_variance()
    assert torch.allclose(log[1:].double(), variance.log()[1:], rtol=1e-5) and log[0] == log[1]


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_short_schedules(steps: int) -> None:
    for schedule in (stable.linear_schedule(steps), stable.cosine_schedule(steps)):
        assert (
            schedule.alphas_cumprod.shape == (steps,) and schedule.posterior_log_variance().isfinite().all()
        )
        assert schedule.log_snr(torch.arange(steps)).isfinite().all()


def test_gradients_by_differences() -> None:
    gradcheck(stable.snr, row(0.1, 0.5, 0.9))
    gradcheck(stable.log_snr, row(0.1, 0.5, 0.9))
    _, (gradient,) = value_and_gradients(stable.log_snr, row(0.0, 0.5, 1.0))
    assert gradient[0] == 0 and gradient[1] > 0 and gradient[2] == 0
    schedule, t = SCHEDULES[0], torch.tensor([5])
    gradcheck(lambda c, n: schedule.clean_from_noise(c, n, t), torch.randn(1, 3), torch.randn(1, 3))
