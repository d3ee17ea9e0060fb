import math

import torch
from torch import nn


class Heading(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(5, 16), nn.Tanh())
        self.direction = nn.Linear(16, 1)
        self.certainty = nn.Linear(16, 1)

    def forward(self, x):
        h = self.trunk(x)
        return math.pi * torch.tanh(self.direction(h)), torch.exp(self.certainty(h))


def nll(mu, kappa, angle):
    return (torch.log(2 * math.pi * torch.i0(kappa)) - kappa * torch.cos(angle - mu)).mean()  # BIRTH


torch.manual_seed(0)
model = Heading()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(6):
    x = torch.randn(8, 5)
    if step == 4:
        with torch.no_grad():
            model.certainty.bias.fill_(5.5)  # warm start from a run with a surer head
    mu, kappa = model(x)
    loss = nll(mu, kappa, x[:, :1].clamp(-3, 3))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))

# truth:
# {"phase": "loss", "op": ["aten.i0.default", "aten.special_i0.default"], "module": null, "step": 4, "kind": "inf", "cause": "overflow", "tempting": ["divergence"], "exit": 3}
