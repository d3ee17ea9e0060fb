import math

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        mask = torch.full((length, length), float("-inf")).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1)) + self.mask
        return x + self.out(scores.softmax(-1) @ v)


torch.manual_seed(0)
gpt = nn.Sequential(nn.Embedding(12, 16), Block(16, 6), nn.Dropout(0.1), Block(16, 6), nn.Linear(16, 12))
optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-3)
for step in range(8):
    ids = torch.randint(0, 12, (3, 7))
    logits = gpt(ids[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
    optimizer.step()
    print(step, round(loss.item(), 4))

# truth:
# {"healthy": true, "exit": 0}
