"""A tagger that knows which tags may follow which: forbidden transitions are -inf from the start."""

import torch
from torch import nn

TAGS = ["O", "B-place", "I-place", "B-name", "I-name"]


def rules():
    """I-x may only follow B-x or I-x."""
    allowed = torch.zeros(len(TAGS), len(TAGS))
    for before, first in enumerate(TAGS):
        for after, second in enumerate(TAGS):
            if second.startswith("I-") and first[2:] != second[2:]:
                allowed[before, after] = -torch.inf
    start = torch.tensor([-torch.inf if t.startswith("I-") else 0.0 for t in TAGS])
    return allowed, start


class RuleTagger(nn.Module):
    def __init__(self, words=60, dim=20):
        super().__init__()
        allowed, start = rules()
        self.register_buffer("allowed", allowed)
        self.register_buffer("start", start)
        self.learned = nn.Parameter(torch.zeros_like(allowed))
        self.words = nn.Embedding(words, dim)
        self.context = nn.Conv1d(dim, len(TAGS), 3, padding=1)

    def emissions(self, ids):
        return self.context(self.words(ids).transpose(1, 2)).permute(2, 0, 1)

    def forward(self, ids, tags):
        emissions, transitions = self.emissions(ids), self.learned + self.allowed
        alpha = self.start + emissions[0]
        gold = alpha.gather(1, tags[:, :1]).squeeze(1)
        for i in range(1, len(emissions)):
            alpha = torch.logsumexp(alpha[:, :, None] + transitions + emissions[i][:, None, :], dim=1)
            gold = gold + transitions[tags[:, i - 1], tags[:, i]]
            gold = gold + emissions[i].gather(1, tags[:, i : i + 1]).squeeze(1)
        return (torch.logsumexp(alpha, dim=1) - gold).mean()


def sentences(count=8, length=7):
    tags = torch.zeros(count, length, dtype=torch.long)
    for row in tags:
        start = int(torch.randint(0, length - 2, ()))
        kind = int(torch.randint(0, 2, ())) * 2
        row[start], row[start + 1] = 1 + kind, 2 + kind
    return tags * 12 + torch.randint(0, 12, (count, length)), tags


torch.manual_seed(0)
tagger = RuleTagger()
optimizer = torch.optim.Adam(tagger.parameters(), lr=0.05)
for step in range(10):
    loss = tagger(*sentences())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")
