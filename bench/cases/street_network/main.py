"""Traffic at crossings from traffic at the crossings around them: many rounds of messages."""

import torch
from torch import nn


class Round(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.own = nn.Linear(dim, dim)
        self.message = nn.Linear(dim, dim)

    def forward(self, x, start, end):
        received = torch.zeros_like(x).index_add_(0, end, self.message(x)[start])
        return torch.relu(self.own(x) + received)


class StreetNet(nn.Module):
    def __init__(self, dim=16, rounds=32):
        super().__init__()
        self.enter = nn.Linear(3, dim)
        self.rounds = nn.ModuleList([Round(dim) for _ in range(rounds)])
        self.leave = nn.Linear(dim, 1)

    def forward(self, x, start, end):
        x = self.enter(x)
        for layer in self.rounds:
            x = layer(x, start, end)
        return self.leave(x).squeeze(1)


def city(crossings, streets):
    start, end = torch.randint(0, crossings, (2, streets))
    features = torch.rand(crossings, 3)
    return features, start, end, features.sum(dim=1)


torch.manual_seed(0)
model = StreetNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)
for day, (crossings, streets) in enumerate([(40, 60), (40, 60), (40, 70), (60, 6000), (60, 6000)]):
    features, start, end, traffic = city(crossings, streets)
    loss = nn.functional.l1_loss(model(features, start, end), traffic)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(day, f"{loss.item():.4g}")
