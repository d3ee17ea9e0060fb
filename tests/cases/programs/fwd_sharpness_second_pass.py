"""Sharpness-aware minimisation: the second pass is made with other weights, which are put back before the update."""

import torch
from torch import nn


class Sharpness:
    def __init__(self, parameters, base, radius):
        self.weights, self.base, self.radius = list(parameters), base, radius

    @torch.no_grad()
    def climb(self):
        norm = torch.stack([w.grad.norm() for w in self.weights]).norm()
        self.before = [w.data.clone() for w in self.weights]
        for w in self.weights:
            w.add_(w.grad * (self.radius / (norm + 1e-12)))
        self.base.zero_grad()

    def descend(self):
        for w, before in zip(self.weights, self.before):
            w.data = before
        self.base.step()
        self.base.zero_grad()


class Spread(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 0.25))

    def forward(self, x):
        return torch.sqrt(x @ self.weight)  # BIRTH


torch.manual_seed(0)
model = nn.Sequential(Spread(), nn.Flatten(0))
sharpness = Sharpness(model.parameters(), torch.optim.SGD(model.parameters(), lr=1e-3), radius=0.05)
for step in range(6):
    x = torch.rand(8, 4) + 0.5
    if step == 3:
        x[6] = torch.tensor([2.0, -0.66, -0.66, -0.66])  # near the edge: 0.005 above it
    for half in (sharpness.climb, sharpness.descend):
        loss = -model(x).mean()
        loss.backward()
        half()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.sqrt.default", "module": "0", "step": 3, "kind": "nan", "samples": [6], "cause": "invalid-domain", "exit": 3}
