"""The models that the overhead is measured on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x_BTD: Tensor) -> Tensor:
        b, t, d = x_BTD.shape
        q, k, v = (
            self.qkv(self.norm1(x_BTD)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x_BTD = x_BTD + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return x_BTD + self.down(F.gelu(self.up(self.norm2(x_BTD))))


class GPT(nn.Module):
    def __init__(self, layers: int, dim: int, heads: int, vocab: int, context: int) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids_BT: Tensor) -> Tensor:
        x = self.embed(ids_BT) + self.position(torch.arange(ids_BT.shape[1], device=ids_BT.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )


ROUNDS = 300
"""In each, a model is trained a few steps unwatched and as many watched, in each way."""


@dataclass
class Task:
    """One thing to train: `build` makes the model, `batch` a batch, `loss` the loss of a batch."""

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[torch.device], tuple[Tensor, Tensor]]
    steps: int
    """Between two changes of what watches it."""
    rounds: int
    autocast: torch.dtype | None = None
    is_quick: bool = True
    """A hundred steps take seconds, not minutes."""
    settling: int = 12
    """Steps after each change until they take what they take from then on: caches have to fill, and Python
    has to find out what its code does most."""

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=self.autocast, enabled=self.autocast is not None):
            logits = model(x)
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))


def _tokens(vocab: int, batch: int, length: int) -> Callable[[torch.device], tuple[Tensor, Tensor]]:
    def make(device: torch.device) -> tuple[Tensor, Tensor]:
        ids = torch.randint(0, vocab, (batch, length + 1), device=device)
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    return make


def _pictures(device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.randn(512, 784, device=device), torch.randint(0, 10, (512,), device=device)


def cpu_tasks() -> list[Task]:
    return [
        Task("GPT 4x128, batch 8x64", lambda: GPT(4, 128, 4, 512, 64), _tokens(512, 8, 64), 8, ROUNDS),
        Task("MLP 784-1024-1024-10, batch 512", mlp, _pictures, 8, ROUNDS),
        Task(
            "GPT 6x384, batch 4x256",
            lambda: GPT(6, 384, 6, 512, 256),
            _tokens(512, 4, 256),
            3,
            30,
            is_quick=False,
        ),
    ]


def gpu_tasks() -> list[Task]:
    return [_gpt_on_a_gpu(12, 768, 12, 8, 1024), _gpt_on_a_gpu(24, 1024, 16, 8, 1024)]


def all_host_task() -> Task:
    """A batch so small that a GPU waits for its host: all that is done there is seen."""
    return _gpt_on_a_gpu(12, 768, 12, 1, 256)


def _gpt_on_a_gpu(layers: int, dim: int, heads: int, batch: int, length: int) -> Task:
    return Task(
        f"GPT {layers}x{dim}, batch {batch}x{length}, bf16 autocast",
        lambda: GPT(layers, dim, heads, 50304, 1024),
        _tokens(50304, batch, length),
        100,  # a change of what watches it costs the host its lead: few steps would show little else
        8,
        torch.bfloat16,
        settling=40,  # it gains a millisecond or two a step on its GPU
    )
