"""Embed wines so that bottles of one style are near each other (supervised contrastive loss)."""

import torch
import torch.nn.functional as F
from torch import nn


class SupervisedContrast(nn.Module):
    def __init__(self, temperature=0.1):
        super().__init__()
        self.temperature = temperature

    def forward(self, embeddings, styles):
        logits = embeddings @ embeddings.t() / self.temperature
        logits = logits - logits.amax(dim=1, keepdim=True).detach()
        others = 1 - torch.eye(len(styles))
        same = (styles[:, None] == styles[None, :]).float() * others
        log_prob = logits - torch.log((logits.exp() * others).sum(dim=1, keepdim=True))
        per_anchor = (same * log_prob).sum(dim=1) / same.sum(dim=1)
        return -per_anchor.mean()


class WineEncoder(nn.Module):
    def __init__(self, measures=11, width=8):
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm1d(measures), nn.Linear(measures, 32), nn.ReLU(), nn.Linear(32, width)
        )

    def forward(self, wine):
        return F.normalize(self.body(wine), dim=1)


def cellar():
    """Measurements and style of each bottle; there is a single bottle of ice wine."""
    typical = torch.randn(5, 11)
    styles = torch.tensor([0, 1, 2, 3] * 12)
    styles[41] = 4
    return typical[styles] + 0.4 * torch.randn(len(styles), 11), styles


torch.manual_seed(0)
wines, styles = cellar()
encoder, criterion = WineEncoder(), SupervisedContrast()
optimizer = torch.optim.Adam(encoder.parameters(), lr=2e-3)
for step, rows in enumerate(torch.arange(len(wines)).split(8)):
    loss = criterion(encoder(wines[rows]), styles[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"shelf {step}: {loss.item():.4f}")
