import copy

import torch
from torch import nn


class FakeQuantLinear(nn.Module):
    """A linear layer with its weights rounded to int8, one scale per output channel."""

    def __init__(self, linear):
        super().__init__()
        weight = linear.weight.detach().half()
        span = weight.abs().amax(dim=1, keepdim=True)
        scale = span / 127
        rounded = (weight / scale).round().clamp(-127, 127)
        self.register_buffer("weight", (rounded * scale).float())
        self.bias = linear.bias

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias)


def prune_(linear, share):
    """Takes the smallest weights out, channel by channel."""
    with torch.no_grad():
        for row in linear.weight:
            count = int(share * row.numel())
            row[row.abs().argsort()[:count]] = 0.0


def quantise(model):
    model = copy.deepcopy(model)
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            setattr(model, name, FakeQuantLinear(child))
    return model


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.05)
    for _ in range(steps):
        x = torch.randn(32, 8)
        loss = (model(x) - x[:, :2].tanh()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(5)
model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 2))
with torch.no_grad():
    model[0].bias[7] = -40.0  # a unit that never fires, so that decay alone acts on its weights
print("trained", round(train(model, 520), 5))
prune_(model[0], 0.25)
small = quantise(model).eval()
with torch.no_grad():
    for batch in range(3):
        x = torch.randn(4, 8)
        print(batch, (small(x) - model(x)).abs().max().item())
