"""Noise schedules for diffusion, safe at both ends.

At the clean end 1 - alpha_bar rounds to 0 (0.9999 is 1 in half precision), at the noisy end alpha_bar itself
is 0; signal-to-noise ratios, their logarithms and the way back to the clean sample divide by one of them.
Everything is computed in float64 once, bounded, and kept in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nanwatch.stable.arguments import require_choice, require_floating, require_number
from nanwatch.stable.elementary import guarded_log
from nanwatch.stable.limits import bounded_to, largest_below_one, wide_dtype, widened

LEAST_SIGNAL = 1e-12
"""The smallest alpha_bar a schedule holds: its inverse and its root are far from the limits of float32."""


def linear_betas(steps: int, first: float = 1e-4, last: float = 0.02) -> Tensor:
    """Ho et al. 2020, in float64."""
    require_number("linear_betas", "steps", steps, least=1, example=1000)
    require_number("linear_betas", "first", first, least=0.0, most=1.0, example=1e-4)
    require_number("linear_betas", "last", last, least=0.0, most=1.0, example=0.02)
    return torch.linspace(first, last, steps, dtype=torch.float64)


def cosine_betas(steps: int, offset: float = 0.008, largest: float = 0.999) -> Tensor:
    """Nichol and Dhariwal 2021, in float64; the last betas are bounded by `largest`."""
    require_number("cosine_betas", "steps", steps, least=1, example=1000)
    require_number("cosine_betas", "offset", offset, above=0.0, example=0.008)
    require_number("cosine_betas", "largest", largest, above=0.0, most=1.0, example=0.999)
    time = torch.linspace(0, 1, steps + 1, dtype=torch.float64)
    signal = torch.cos((time + offset) / (1 + offset) * (math.pi / 2)) ** 2
    return (1 - signal[1:] / signal[:-1]).clamp(0.0, largest)


def alphas_cumprod(betas: Tensor, least: float = LEAST_SIGNAL) -> Tensor:
    """The running product of 1 - beta, in float64, kept between `least` and the last float32 below 1."""
    require_floating("alphas_cumprod", betas=betas)
    require_number("alphas_cumprod", "least", least, above=0.0, most=1.0, example=LEAST_SIGNAL)
    if betas.numel():
        low, high = (end.item() for end in torch.aminmax(betas))
        require_number("alphas_cumprod", "betas.min()", low, least=0.0, example=1e-4)
        require_number("alphas_cumprod", "betas.max()", high, most=1.0, example=0.02)
    signal = torch.cumprod(1 - betas.double(), dim=-1)
    return signal.clamp(least, largest_below_one(torch.float32))


def snr(alpha_bar: Tensor) -> Tensor:
    """alpha_bar / (1 - alpha_bar); at 1, where the plain ratio is inf, that of the last number below 1."""
    require_floating("snr", alpha_bar=alpha_bar)
    wide = widened(alpha_bar).clamp(max=largest_below_one(alpha_bar.dtype))
    return (wide / (1 - wide)).to(alpha_bar.dtype)


def log_snr(alpha_bar: Tensor) -> Tensor:
    """log(snr(alpha_bar)), finite at both ends, with gradient 0 there."""
    require_floating("log_snr", alpha_bar=alpha_bar)
    wide = widened(alpha_bar).clamp(max=largest_below_one(alpha_bar.dtype))
    wide = wide.masked_fill(wide <= 0, 0.0)
    return (guarded_log(wide, alpha_bar.dtype) - torch.log1p(-wide)).to(alpha_bar.dtype)


@dataclass(frozen=True)
class NoiseSchedule:
    """alpha_bar of each time step, and what is made from it. Samples keep their dtype and their gradient."""

    alphas_cumprod: Tensor

    def add_noise(self, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """sqrt(alpha_bar) clean + sqrt(1 - alpha_bar) noise, with t one time step per sample."""
        signal, rest = self._roots(t, clean)
        return (signal * widened(clean) + rest * widened(noise)).to(clean.dtype)

    def clean_from_noise(self, noisy: Tensor, noise: Tensor, t: Tensor, bound: float | None = None) -> Tensor:
        """The clean sample that a predicted noise means, within ±bound and within the dtype."""
        signal, rest = self._roots(t, noisy)
        clean = (widened(noisy) - rest * widened(noise)) / signal
        if bound is not None:
            require_number("clean_from_noise", "bound", bound, above=0.0, example=1.0)
            clean = clean.clamp(-bound, bound)
        return bounded_to(clean, noisy.dtype)

    def velocity(self, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """sqrt(alpha_bar) noise - sqrt(1 - alpha_bar) clean: a target that has no singular end."""
        signal, rest = self._roots(t, clean)
        return (signal * widened(noise) - rest * widened(clean)).to(clean.dtype)

    def snr(self, t: Tensor) -> Tensor:
        return snr(self._at(t))

    def log_snr(self, t: Tensor) -> Tensor:
        return log_snr(self._at(t))

    def min_snr_weight(self, t: Tensor, gamma: float = 5.0, predicts: str = "noise") -> Tensor:
        """Hang et al. 2023: min(snr, gamma), divided by what the loss of that target already weighs."""
        require_number("min_snr_weight", "gamma", gamma, above=0.0, example=5.0)
        require_choice("min_snr_weight", "predicts", predicts, ("noise", "clean", "velocity"))
        ratio = self.snr(t)
        weight = ratio.clamp(max=gamma)
        if predicts == "noise":
            return weight / ratio
        return weight / (ratio + 1) if predicts == "velocity" else weight

    def posterior_log_variance(self) -> Tensor:
        """log of beta_t (1 - alpha_bar_(t-1)) / (1 - alpha_bar_t); the first, log(0), takes the second's."""
        signal = self.alphas_cumprod.double()
        if signal.numel() < 2:
            return torch.log1p(-signal).float()
        ratio = (signal[1:] / signal[:-1]).clamp(max=largest_below_one(torch.float32))
        log = torch.log1p(-ratio) + torch.log1p(-signal[:-1]) - torch.log1p(-signal[1:])
        return torch.cat([log[:1], log]).float()

    def _at(self, t: Tensor) -> Tensor:
        return self.alphas_cumprod.to(t.device)[t]

    def _roots(self, t: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        signal = self._at(t).to(like.device, wide_dtype(like.dtype))
        signal = signal.reshape(signal.shape + (1,) * (like.dim() - signal.dim()))
        return signal.sqrt(), (1 - signal).sqrt()


def linear_schedule(steps: int, first: float = 1e-4, last: float = 0.02) -> NoiseSchedule:
    return NoiseSchedule(alphas_cumprod(linear_betas(steps, first, last)).float())


def cosine_schedule(steps: int, offset: float = 0.008, largest: float = 0.999) -> NoiseSchedule:
    return NoiseSchedule(alphas_cumprod(cosine_betas(steps, offset, largest)).float())
