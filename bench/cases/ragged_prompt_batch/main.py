"""Scores prompts of different length, padded on the left, in bfloat16; masks are combined before they are filled."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim, window):
        super().__init__()
        self.window = window
        self.qkv = nn.Linear(dim, 3 * dim)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, dim)

    def bias(self, present, dtype):
        position = torch.arange(present.shape[1])
        age = position[:, None] - position[None, :]
        seen = (age >= 0) & (age < self.window) & present[:, None, :]
        return torch.where(seen, torch.zeros((), dtype=dtype), torch.finfo(dtype).min)

    def forward(self, x, present):
        query, key, value = self.qkv(self.norm(x)).chunk(3, dim=-1)
        scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5 + self.bias(present, x.dtype)
        return x + self.out(scores.softmax(dim=-1) @ value)


class PromptScorer(nn.Module):
    def __init__(self, vocabulary=90, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList([Block(dim, window=4), Block(dim, window=8)])
        self.score = nn.Linear(dim, 1)

    def forward(self, ids):
        present = ids != 0
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, present)
        return self.score(x[:, -1]).squeeze(-1)


torch.manual_seed(0)
model = PromptScorer().to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(8):
    ids = torch.randint(1, 90, (6, 14))
    for row, length in enumerate(torch.randint(1, 15, (6,)).tolist()):
        ids[row, : 14 - length] = 0
    target = (ids[:, -1] > 45).to(torch.bfloat16)
    loss = nn.functional.binary_cross_entropy_with_logits(model(ids), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")
