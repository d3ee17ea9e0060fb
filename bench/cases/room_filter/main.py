"""Learns the two coefficients of a resonator so that it sounds like a recording of a room."""

import torch
from torch import nn


class Resonator(nn.Module):
    """y[n] = x[n] + a y[n-1] + b y[n-2]"""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(0.2))
        self.b = nn.Parameter(torch.tensor(-0.3))

    def forward(self, x):
        before, last = torch.zeros(x.shape[0]), torch.zeros(x.shape[0])
        out = []
        for sample in x.unbind(1):
            before, last = last, sample + self.a * last + self.b * before
            out.append(last)
        return torch.stack(out, dim=1)


def room(clicks):
    with torch.no_grad():
        target = Resonator()
        target.a.fill_(1.75)
        target.b.fill_(-0.9)
        return target(clicks)


torch.manual_seed(0)
model = Resonator()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
for step in range(12):
    clicks = (torch.rand(4, 60) < 0.1).float()
    loss = nn.functional.mse_loss(model(clicks), room(clicks))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"loss {loss.item():.4g} a {model.a.item():.3f} b {model.b.item():.3f}")
