"""The classifier: an encoder of instances, attention that pools them to one vector per bag, a head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from bags import CLASSES, FEATURES
from settings import Settings
from torch import nn


class AttentionPool(nn.Module):
    """The mean of a bag's instances, weighted by a learned score."""

    def __init__(self, dim: int, bound: float | None, temperature: float) -> None:
        super().__init__()
        self.hidden = nn.Linear(dim, dim)
        self.score = nn.Linear(dim, 1)
        self.bound = bound
        self.temperature = temperature

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.score(torch.tanh(self.hidden(x))).squeeze(-1) / self.temperature
        return scores if self.bound is None else scores.clamp(-self.bound, self.bound)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.scores(x).masked_fill(~mask, float("-inf"))
        weights = F.softmax(scores, dim=-1)
        return torch.einsum("bt,btd->bd", weights, x), weights


class ChunkedAttentionPool(AttentionPool):
    """The same for bags that are too long to be scored at once: two sums that go from chunk to chunk."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weighted, total, parts = 0.0, 0.0, []
        for chunk, seen in zip(x.split(4, dim=1), mask.split(4, dim=1), strict=True):
            part = torch.exp(self.scores(chunk)) * seen
            weighted = weighted + torch.einsum("bt,btd->bd", part, chunk)
            total = total + part.sum(dim=1, keepdim=True)
            parts.append(part)
        return weighted / total, torch.cat(parts, dim=1) / total


class BagNorm(nn.Module):
    """Batch normalisation of the pooled vectors, with running statistics for validation."""

    def __init__(self, dim: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))
        self.momentum, self.eps = momentum, eps

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean, var = pooled.mean(dim=0), pooled.var(dim=0)
            self.running_mean.lerp_(mean.detach().float(), self.momentum)
            self.running_var.lerp_(var.detach().float(), self.momentum)
        return (pooled - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias


class BagClassifier(nn.Module):
    def __init__(self, s: Settings) -> None:
        super().__init__()
        pool = ChunkedAttentionPool if s.chunked else AttentionPool
        self.encoder = nn.Sequential(nn.Linear(FEATURES, s.dim), nn.GELU(), nn.Dropout(0.1))
        self.pool = pool(s.dim, s.score_bound, s.temperature)
        self.norm = BagNorm(s.dim)
        self.head = nn.Linear(s.dim, CLASSES)
        self.one_vs_rest = s.one_vs_rest

    def forward(self, features: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Each bag's logits (one against the rest: its probabilities), and what its instances counted."""
        pooled, weights = self.pool(self.encoder(features), mask)
        logits = self.head(self.norm(pooled))
        return torch.sigmoid(logits) if self.one_vs_rest else logits, weights
