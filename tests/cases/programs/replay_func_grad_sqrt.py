import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)


def distance(point):
    centre = point - point.mean()
    return (centre * centre).sum().sqrt()  # BIRTH


directions = torch.func.vmap(torch.func.grad(distance))
for step in range(5):
    points = torch.randn(4, 3)
    if step == 3:
        points[1] = 2.0
    loss = (net(directions(points)) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": ["data", "backward"], "op": "aten.div.Tensor", "module": null, "step": 3, "kind": "inf", "cause": "singular-gradient", "exit": 3}
