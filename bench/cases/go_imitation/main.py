"""Imitate a strong Go player's move distribution; illegal moves are masked."""

import torch
import torch.nn.functional as F
from torch import nn

SIZE = 5
MOVES = SIZE * SIZE + 1


class PolicyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.board = nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), nn.ReLU(), nn.Flatten())
        self.moves = nn.Linear(16 * SIZE * SIZE, MOVES)

    def forward(self, stones, legal):
        logits = self.moves(self.board(stones))
        return F.log_softmax(logits.masked_fill(~legal, float("-inf")), dim=1)


def divergence(teacher, student):
    """KL(teacher || student), with 0 log 0 = 0."""
    log_teacher = torch.where(teacher > 0, teacher, 1.0).log()
    return (teacher * (log_teacher - student)).sum(dim=1).mean()


class Games:
    """Positions with the moves of a search; it explores legal moves only."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, count, opening):
        fill = 0.0 if opening else 0.5
        stones = (torch.rand(count, 2, SIZE, SIZE, generator=self.generator) < fill).float()
        legal = torch.ones(count, MOVES, dtype=torch.bool)
        legal[:, :-1] = stones.sum(dim=1).flatten(1) == 0
        visits = torch.rand(count, MOVES, generator=self.generator) ** 4 * legal
        return stones, legal, visits / visits.sum(dim=1, keepdim=True)


torch.manual_seed(0)
games, net = Games(7), PolicyNet()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(8):
    stones, legal, teacher = games.draw(10, opening=step < 3)
    loss = divergence(teacher, net(stones, legal))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step}: {loss.item():.4f}")
