"""Predict traffic on a road network with a graph network; some junctions have no road yet."""

import torch
from torch import nn


def normalised(adjacency):
    """D^-1/2 A D^-1/2, zero for nodes without an edge."""
    scale = adjacency.sum(dim=1).pow(-0.5)
    scale = scale.masked_fill(scale == float("inf"), 0.0)
    return scale[:, None] * adjacency * scale[None, :]


class TrafficNet(nn.Module):
    def __init__(self, features, hidden=16):
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, 1)

    def forward(self, adjacency, x):
        spread = normalised(adjacency)
        x = torch.relu(self.first(spread @ x))
        return self.second(spread @ x).squeeze(1)


def city(junctions, generator):
    roads = (torch.rand(junctions, junctions, generator=generator) < 0.15).float().triu(1)
    roads = roads + roads.t()
    planned = torch.randperm(junctions, generator=generator)[:3]
    roads[planned] = 0.0
    roads[:, planned] = 0.0
    return roads, torch.rand(junctions, 4, generator=generator)


generator = torch.Generator().manual_seed(0)
torch.manual_seed(0)
model = TrafficNet(4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for day in range(15):
    roads, x = city(30, generator)
    flow = roads @ x[:, 0]
    loss = nn.functional.mse_loss(model(roads, x), flow)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"day {day}: {loss.item():.4f}")
