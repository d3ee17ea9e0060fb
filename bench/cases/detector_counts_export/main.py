"""Saves a trained classifier of X-ray detector counts in half precision and tests the saved file."""

import tempfile
from pathlib import Path

import torch
from torch import nn


class CountNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.normalise = nn.BatchNorm1d(24, momentum=0.5)
        self.layers = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, counts):
        return self.layers(self.normalise(counts))


def shots(count):
    """Raw detector counts: tens of thousands of photons per cell, the more the thinner the sample."""
    kind = torch.randint(0, 3, (count,))
    return 60000 + 12000 * kind[:, None] + 9000 * torch.randn(count, 24), kind


def train(model, steps=12):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        counts, kind = shots(64)
        loss = nn.functional.cross_entropy(model(counts), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")


def save(model, path):
    small = {k: v.half() if v.is_floating_point() else v for k, v in model.state_dict().items()}
    torch.save(small, path)


torch.manual_seed(0)
model = CountNet()
train(model)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "counts.pt")
    save(model, path)
    tested = CountNet()
    tested.load_state_dict(torch.load(path))
tested.eval()
with torch.no_grad():
    counts, kind = shots(32)
    print(f"mean logit {tested(counts).mean().item():.4f}")
