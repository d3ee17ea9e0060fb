import torch
from torch import nn


def geodesic(a, b):
    dot = (a * b).sum(dim=-1).clamp(-1.0, 1.0)
    return torch.acos(dot)  # BIRTH


torch.manual_seed(0)
rotation = nn.Linear(3, 3, bias=False)
nn.init.eye_(rotation.weight)
optimizer = torch.optim.SGD(rotation.parameters(), lr=1e-3)
points = torch.tensor([[0.6, 0.8, 0.0], [0.0, 0.6, 0.8], [1.0, 0.0, 0.0]])
goals = torch.tensor([[0.8, 0.6, 0.0], [0.0, 0.8, 0.6], [1.0, 0.0, 0.0]])
for step in range(3):
    loss = geodesic(rotation(points), goals).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.rsqrt.default", "module": null, "step": 0, "kind": "inf", "samples": [2], "cause": "singular-gradient", "exit": 3}
