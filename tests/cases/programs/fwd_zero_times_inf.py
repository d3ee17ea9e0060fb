import torch
from torch import nn


class NearestGate(nn.Module):
    """Distances to prototypes; the ones a sample may not use are set to infinity."""

    def __init__(self):
        super().__init__()
        self.prototypes = nn.Parameter(torch.randn(4, 3))
        self.alpha = nn.Parameter(torch.ones(4))

    def forward(self, x, allowed):
        d = (x[:, None] - self.prototypes).square().sum(-1)
        d = torch.where(allowed, d, torch.tensor(float("inf")))
        keep = (d <= d.min(dim=1, keepdim=True).values).float()
        return (d * keep).sum(dim=1)  # BIRTH


torch.manual_seed(0)
gate = NearestGate()
optimizer = torch.optim.SGD(gate.parameters(), lr=0.1)
for i in range(4):
    x = torch.randn(3, 3)
    allowed = torch.ones(3, 4, dtype=torch.bool)
    if i == 2:
        allowed[0, 1] = False
    loss = gate(x, allowed).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, loss.item())

# truth:
# {"phase": "forward", "op": "aten.mul.Tensor", "module": "", "step": 2, "kind": "nan", "samples": [0], "cause": "inf-arithmetic", "exit": 3}
