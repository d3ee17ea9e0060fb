import math

import torch
from torch import nn


class Mixture(nn.Module):
    """Two bumps; the share of the second is what the first leaves."""

    def __init__(self):
        super().__init__()
        self.share = nn.Linear(2, 1)
        self.means = nn.Parameter(torch.tensor([-1.0, 1.0]))

    def forward(self, x):
        first = self.share(x).squeeze(1)
        return torch.stack([first, 1 - first], dim=1)


def negative_log_likelihood(shares, means, y):
    density = torch.exp(-0.5 * (y[:, None] - means) ** 2) / math.sqrt(2 * math.pi)
    return -torch.log((shares * density).sum(dim=1)).mean()  # BIRTH


torch.manual_seed(0)
model = Mixture()
with torch.no_grad():
    model.share.weight.fill_(0.1)
    model.share.bias.fill_(0.5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(6):
    x, y = torch.rand(5, 2), torch.randn(5)
    if step == 4:
        x[3], y[3] = torch.tensor([9.0, 9.0]), 2.5
    loss = negative_log_likelihood(model(x), model.means, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.log.default", "module": null, "step": 4, "kind": "nan", "samples": [3], "cause": "invalid-probabilities", "also": ["invalid-domain"], "tempting": ["log-of-zero"], "exit": 3}
