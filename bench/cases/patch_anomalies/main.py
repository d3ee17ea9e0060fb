"""Embed windows of a machine's vibration; hard negatives are mined with the diagonal set to infinity."""

import torch
import torch.nn.functional as F
from torch import nn


class WindowEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 8))

    def forward(self, window):
        return F.normalize(self.layers(window), dim=1)


def hardest_triplets(anchor, positive, margin=0.5):
    similarity = anchor @ positive.t()
    to_positive = 1 - similarity.diagonal()
    distance = 1 - similarity
    distance = distance.masked_fill(torch.eye(len(distance), dtype=torch.bool), float("inf"))
    to_negative = distance.min(dim=1).values
    return F.relu(to_positive - to_negative + margin).mean()


def vibration(count):
    """Neighbouring windows of the same turn are alike."""
    time = torch.arange(33) / 8
    speed = 1 + 3 * torch.rand(count, 1)
    wave = torch.sin(speed * time) + 0.1 * torch.randn(count, 33)
    return wave[:, :-1], wave[:, 1:]


torch.manual_seed(0)
model = WindowEncoder()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
best, best_step = float("inf"), -1
for step in range(25):
    loss = hardest_triplets(*(model(window) for window in vibration(16)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if loss.item() < best:
        best, best_step = loss.item(), step
    print(f"{step}: {loss.item():.4f} (best {best:.4f} at {best_step})")
