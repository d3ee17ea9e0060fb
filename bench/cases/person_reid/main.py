"""Embeddings for recognising people across cameras: batch-hard triplets on Euclidean distances."""

import torch
from torch import nn


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, crops):
        return self.layers(crops)


class BatchHardTriplets(nn.Module):
    def __init__(self, margin=0.3):
        super().__init__()
        self.margin = margin

    def forward(self, embeddings, people):
        squares = embeddings.square().sum(dim=1)
        squared = squares[:, None] + squares[None, :] - 2 * embeddings @ embeddings.t()
        distance = squared.clamp(min=0).sqrt()
        same = people[:, None] == people[None, :]
        furthest = distance.masked_fill(~same, 0.0).amax(dim=1)
        nearest = distance.masked_fill(same, 1e6).amin(dim=1)
        return torch.relu(furthest - nearest + self.margin).mean()


class Cameras:
    """Crops of people from several cameras; a person looks alike in each."""

    def __init__(self, people):
        self.looks = torch.randn(people, 32)

    def batch(self, people, views):
        chosen = torch.randperm(len(self.looks))[:people].repeat_interleave(views)
        return self.looks[chosen] + 0.3 * torch.randn(len(chosen), 32), chosen


torch.manual_seed(0)
cameras = Cameras(40)
model, criterion = Embedder(), BatchHardTriplets()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
for step in range(10):
    crops, people = cameras.batch(people=6, views=3)
    loss = criterion(model(crops), people)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print(f"{step}: {loss.item():.4f}")
