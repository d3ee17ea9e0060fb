"""Learns to foretell the next event of a server's log with attention to a short window of the past."""

import torch
from torch import nn

EVENTS, WINDOW, LENGTH = 30, 3, 10


def may_see(ids):
    """[batch, query, key]: earlier events, no further back than the window, and no padding."""
    position = torch.arange(ids.shape[1])
    age = position[:, None] - position[None, :]
    local = (age >= 0) & (age < WINDOW)
    return local & (ids != 0)[:, None, :]


class LocalAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, seen):
        query, key, value = self.qkv(self.norm(x)).chunk(3, dim=-1)
        scores = torch.einsum("bqd,bkd->bqk", query, key) / query.shape[-1] ** 0.5
        weights = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1)
        return x + torch.einsum("bqk,bkd->bqd", weights, value)


class Foreteller(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(EVENTS, dim)
        self.layers = nn.ModuleList([LocalAttention(dim), LocalAttention(dim)])
        self.head = nn.Linear(dim, EVENTS)

    def forward(self, ids):
        x, seen = self.embed(ids), may_see(ids)
        for layer in self.layers:
            x = layer(x, seen)
        return self.head(x)


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = Foreteller()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2)

    def step(self, ids):
        logits = self.model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], ignore_index=0)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


trainer = Trainer()
for day in range(6):
    ids = torch.randint(1, EVENTS, (4, LENGTH))
    if day == 3:
        ids[1, :4] = 0  # a server that was started at noon: its log begins later
    print(f"day {day}: loss {trainer.step(ids):.4f}")
