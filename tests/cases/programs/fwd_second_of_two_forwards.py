import torch
from torch import nn


class Projector(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8, bias=False), nn.Tanh(), nn.Linear(8, 4, bias=False))

    def forward(self, view):
        z = self.net(view)
        return z * z.pow(2).sum(dim=1, keepdim=True).rsqrt()  # BIRTH


def augment(x, drop):
    return x * (torch.rand_like(x) > drop)


torch.manual_seed(0)
projector = Projector()
optimizer = torch.optim.Adam(projector.parameters(), lr=1e-3)
for step in range(5):
    x = torch.randn(4, 5)
    z1 = projector(augment(x, 0.0))
    z2 = projector(augment(x, 0.0 if step < 4 else 1.0))  # everything dropped
    loss = 2 - 2 * (z1 * z2).sum(dim=1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.rsqrt.default", "module": "", "step": 4, "kind": "inf", "samples": [0, 1, 2, 3], "cause": "divide-by-zero", "exit": 3}
