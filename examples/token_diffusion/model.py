"""The denoiser: a transformer over pixels, told the step and the prompt by AdaLN-Zero."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from colours import CHANNELS
from settings import Settings
from texts import SIDE
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float, in_float32: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps
        self.in_float32 = in_float32

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float() if self.in_float32 else x
        mean_square = (wide * wide).mean(dim=-1, keepdim=True)
        return (wide * torch.rsqrt(mean_square + self.eps)).to(x.dtype) * self.weight


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, scale_before_product: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, dim)
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.scale_before_product = scale_before_product

    def forward(self, x: torch.Tensor, filled: torch.Tensor) -> torch.Tensor:
        q, k, v = (self._split(project(x)) for project in (self.query, self.key, self.value))
        if self.scale_before_product:
            scores = (q * self.scale) @ k.transpose(-2, -1)
        else:
            scores = q @ k.transpose(-2, -1) * self.scale
        scores = scores.masked_fill(~filled[:, None, None, :], float("-inf"))
        weights = F.softmax(scores, dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Modulation(nn.Module):
    """AdaLN-Zero: shift, scale and gate out of the condition, all zero at the beginning."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.project = nn.Linear(dim, 3 * dim)
        nn.init.zeros_(self.project.weight)
        nn.init.zeros_(self.project.bias)

    def forward(self, condition: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.project(F.silu(condition)).unsqueeze(1).chunk(3, dim=-1)


class Block(nn.Module):
    def __init__(self, s: Settings) -> None:
        super().__init__()
        self.norm1 = RMSNorm(s.dim, s.norm_eps, s.norm_in_float32)
        self.attention = Attention(s.dim, s.heads, s.scale_before_product)
        self.modulation1 = Modulation(s.dim)
        self.norm2 = RMSNorm(s.dim, s.norm_eps, s.norm_in_float32)
        self.mlp = nn.Sequential(nn.Linear(s.dim, 2 * s.dim), nn.GELU(), nn.Linear(2 * s.dim, s.dim))
        self.modulation2 = Modulation(s.dim)

    def forward(self, x: torch.Tensor, condition: torch.Tensor, filled: torch.Tensor) -> torch.Tensor:
        shift, scale, gate = self.modulation1(condition)
        x = x + gate * self.attention(self.norm1(x) * (1 + scale) + shift, filled)
        shift, scale, gate = self.modulation2(condition)
        return x + gate * self.mlp(self.norm2(x) * (1 + scale) + shift)


class Denoiser(nn.Module):
    """The noise in each pixel."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        self.prompt = nn.Embedding(s.vocabulary, s.dim)
        self.step = nn.Sequential(nn.Linear(s.dim, s.dim), nn.SiLU(), nn.Linear(s.dim, s.dim))
        self.encode = nn.Linear(CHANNELS + 2, s.dim)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.blocks))
        self.norm = RMSNorm(s.dim, s.norm_eps, s.norm_in_float32)
        self.decode = nn.Linear(s.dim, CHANNELS)
        self.register_buffer("places", torch.cartesian_prod(*[torch.linspace(-1, 1, SIDE)] * 2))
        self.register_buffer("frequencies", 2.0 ** torch.arange(-2, s.dim // 2 - 2).div(2))

    def forward(
        self, noisy: torch.Tensor, log_ratio: torch.Tensor, prompt: torch.Tensor, filled: torch.Tensor
    ) -> torch.Tensor:
        angle = log_ratio[:, None] * self.frequencies
        condition = self.step(torch.cat([angle.sin(), angle.cos()], dim=-1))
        condition = condition + self.prompt(prompt).mean(dim=1)
        pixels = torch.cat([noisy, self.places.expand(len(noisy), -1, -1)], dim=-1)
        x = self.encode(pixels) * filled.unsqueeze(-1)
        for block in self.blocks:
            x = block(x, condition, filled)
        return self.decode(self.norm(x))
