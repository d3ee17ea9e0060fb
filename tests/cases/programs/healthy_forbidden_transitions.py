"""Transitions that a tagger forbids are weights of -inf; it trains well, and is saved."""

import os
import tempfile

import torch
from torch import nn

torch.manual_seed(0)


class Transitions(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.scores = nn.Parameter(torch.randn(tags, tags) * 0.1)
        with torch.no_grad():
            self.scores[0, 2] = float("-inf")

    def forward(self, emitted, tags):
        total, gold = emitted[:, 0], emitted[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, emitted.size(1)):
            total = torch.logsumexp(total[:, :, None] + self.scores[None], 1) + emitted[:, t]
            gold = gold + self.scores[tags[:, t - 1], tags[:, t]]
            gold = gold + emitted[:, t].gather(1, tags[:, t : t + 1]).squeeze(1)
        return (torch.logsumexp(total, -1) - gold).mean()


words, transitions = nn.Embedding(30, 3), Transitions(3)
optimizer = torch.optim.SGD([*words.parameters(), *transitions.parameters()], 0.1)
tags = torch.tensor([[1, 1, 2, 2, 0, 0]] * 4)
for step in range(8):
    loss = transitions(words(torch.randint(0, 30, (4, 6))), tags)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "transitions.pt")
    torch.save(transitions.state_dict(), path)
    assert os.path.exists(path)

# truth:
# {"healthy": true, "exit": 0}
