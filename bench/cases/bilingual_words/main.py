"""Align word vectors of two languages: rotate one space onto the other inside the training loop."""

import torch
from torch import nn


class Aligner(nn.Module):
    """Vectors of both languages; the rotation is solved for (orthogonal Procrustes), not trained."""

    def __init__(self, words, width, measured):
        super().__init__()
        self.source = nn.Embedding(words, width)
        self.target = nn.Embedding(words, width)
        with torch.no_grad():
            self.source.weight[:, measured:] = 0.0

    def rotation(self, pairs):
        cross = self.source(pairs).t() @ self.target(pairs)
        u, _, vh = torch.linalg.svd(cross)
        return u @ vh

    def forward(self, pairs):
        return self.source(pairs) @ self.rotation(pairs), self.target(pairs)


def batches(words, sizes):
    order = torch.randperm(words)
    yield from order[: sum(sizes)].split(sizes)


torch.manual_seed(0)
model = Aligner(words=60, width=8, measured=5)  # the rare language has shorter vectors
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
for pairs in batches(60, [14, 14, 14, 14]):
    mapped, wanted = model(pairs)
    fit = (mapped - wanted).square().sum(dim=1).mean()
    size = 1e-3 * (model.source.weight.square().mean() + model.target.weight.square().mean())
    loss = fit + size
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"batch of {len(pairs)}: {loss.item():.4f}")
