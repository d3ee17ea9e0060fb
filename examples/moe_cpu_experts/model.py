"""A decoder whose feed-forward layers are mixtures of experts; all but the experts is on the device."""

from __future__ import annotations

import torch
from experts import CpuExperts
from settings import Settings
from torch import nn

ALPHABET = "\n abcdefghijklmnopqrstuvwxyz.,;:?!'-"


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, hidden = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, hidden))


class Block(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.before_attention = nn.RMSNorm(settings.hidden, eps=1e-6)
        self.attention = Attention(settings.hidden, settings.heads)
        self.before_experts = nn.RMSNorm(settings.hidden, eps=1e-6)
        self.experts = CpuExperts(settings)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before_attention(x))
        return x + self.experts(self.before_experts(x))


class Decoder(nn.Module):
    """Token ids (batch, length) to the logits of the next token (batch, vocabulary)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(ALPHABET), settings.hidden)
        self.position = nn.Embedding(settings.longest, settings.hidden)
        self.blocks = nn.ModuleList(Block(settings) for _ in range(settings.layers))
        self.norm = nn.RMSNorm(settings.hidden, eps=1e-6)
        self.head = nn.Linear(settings.hidden, len(ALPHABET), bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, -1]))
