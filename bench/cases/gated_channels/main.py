"""Prune the channels of a network with relaxed Bernoulli gates and a prior on how many stay open."""

import math

import torch
from torch import nn

LOW, HIGH = 1e-7, 1 - 1e-7


class ConcreteGate(nn.Module):
    """Samples in (0, 1) that are nearly binary at a low temperature, with their density."""

    def __init__(self, channels, temperature):
        super().__init__()
        self.logits = nn.Parameter(torch.full((channels,), 1.0))
        self.temperature = temperature

    def forward(self, size):
        uniform = torch.empty(size, len(self.logits)).uniform_(LOW, HIGH)
        noise = uniform.log() - torch.log1p(-uniform)
        gate = torch.sigmoid((self.logits + noise) / self.temperature)
        return gate, self.log_density(gate, self.logits)

    def log_density(self, gate, logits):
        t = self.temperature
        odds = torch.log(gate) - torch.log(1 - gate)
        body = logits - t * odds
        return math.log(t) + body - 2 * nn.functional.softplus(body) - torch.log(gate * (1 - gate))


class PrunedNet(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.first = nn.Linear(12, 20)
        self.gate = ConcreteGate(20, temperature)
        self.last = nn.Linear(20, 1)

    def forward(self, x):
        gate, density = self.gate(len(x))
        open_prior = self.gate.log_density(gate, torch.full_like(gate, -1.0))
        return self.last(torch.relu(self.first(x)) * gate).squeeze(1), (density - open_prior).mean()


torch.manual_seed(0)
model = PrunedNet(temperature=0.8)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(20):
    x = torch.randn(16, 12)
    model.gate.temperature = 0.8 * 0.8**step  # annealed until the gates are hard
    predicted, divergence = model(x)
    loss = nn.functional.mse_loss(predicted, x[:, 0] * x[:, 1]) + 1e-2 * divergence
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step}: {loss.item():.4f} at temperature {model.gate.temperature:.3f}")
