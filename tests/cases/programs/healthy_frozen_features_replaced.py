"""A frozen encoder has no features of an empty bag; the head puts learned ones in their place."""

import torch
from torch import nn


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 6)

    def forward(self, ids):
        known = (ids > 0).float().unsqueeze(-1)
        return (self.words(ids) * known).sum(1) / known.sum(1)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.missing, self.out = nn.Parameter(torch.zeros(6)), nn.Linear(6, 3)

    def forward(self, features, known):
        return self.out(torch.where(known[:, None], features, self.missing))


torch.manual_seed(0)
encoder, head = Bag().eval().requires_grad_(False), Head()
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2)
for step in range(8):
    ids = torch.randint(0, 30, (6, 4))
    ids[step % 6] = 0
    with torch.no_grad():
        features = encoder(ids)
    logits = head(features, (ids > 0).any(1))
    loss = nn.functional.cross_entropy(logits, torch.randint(0, 3, (6,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"healthy": true, "exit": 0}
