"""Expected number of insurance claims per contract; gradients are clipped by a hand-written routine."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def contracts(count):
    features = torch.randn(count, 5)
    features[173, 2] = 47.0  # a sum insured that was typed in cents
    expected = torch.exp(0.3 * features[:, :1].clamp(-2, 2) - 1)
    return TensorDataset(features, torch.poisson(expected))


def global_norm(parameters):
    return torch.stack([p.grad.square().sum() for p in parameters]).sum().sqrt()


def clip(parameters, max_norm):
    """Shrink the gradients to `max_norm`. A norm that cannot be used counts as zero: nothing is shrunk."""
    total = global_norm(parameters)
    unusable = total.isinf() | total.isnan()
    total = unusable.logical_not() * total
    factor = max_norm / torch.maximum(total, torch.tensor(max_norm))
    for p in parameters:
        p.grad.mul_(factor)
    return total


class ClaimRate(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 1)
        nn.init.constant_(self.linear.weight, 1.0)

    def forward(self, x):
        return torch.exp(self.linear(x))


torch.manual_seed(0)
model = ClaimRate()
parameters = list(model.parameters())
optimizer = torch.optim.Adam(parameters, lr=1e-3)
loader = DataLoader(contracts(320), batch_size=32)
for batch, (x, claims) in enumerate(loader):
    rate = model(x)
    loss = (rate - claims * torch.log(rate)).mean()
    optimizer.zero_grad()
    loss.backward()
    norm = clip(parameters, max_norm=1.0)
    optimizer.step()
    print(batch, f"loss {loss.item():.4g} norm {norm.item():.4g}")
