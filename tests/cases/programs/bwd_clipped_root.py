import torch
from torch import nn


class Orbit(nn.Module):
    """Speed at a distance; outside of the well it is not defined and set to zero."""

    def __init__(self):
        super().__init__()
        self.depth = nn.Parameter(torch.tensor(1.0))
        self.width = nn.Parameter(torch.tensor(2.0))

    def forward(self, r):
        inside = r < self.width
        speed = torch.sqrt(self.depth * (1 - (r / self.width) ** 2))  # BIRTH
        return torch.where(inside, speed, torch.zeros_like(r))


torch.manual_seed(0)
orbit = Orbit()
optimizer = torch.optim.SGD(orbit.parameters(), lr=0.01)
for step in range(5):
    r = torch.rand(6) * 1.5
    if step == 4:
        r[5] = 3.0
    loss = (orbit(r) - torch.cos(r)).square().mean()
    print(step, round(loss.item(), 5))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": ["forward", "backward"], "op": ["aten.sqrt.default", "aten.div.Tensor"], "module": "", "step": 4, "kind": "nan", "samples": [5], "cause": "where-gradient", "tempting": ["invalid-domain", "singular-gradient"], "exit": 3}
