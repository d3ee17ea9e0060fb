import torch
import torch.nn as nn


class Hazard(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Linear(3, 1)

    def forward(self, x):
        p = torch.sigmoid(self.rate(x)).expand(-1, 4)
        survive = torch.log1p(-p)  # BIRTH
        return survive.cumsum(dim=1)


torch.manual_seed(0)
hazard = Hazard()
optimizer = torch.optim.SGD(hazard.parameters(), lr=0.1)
for t in range(6):
    x = torch.rand(3, 3)
    if t == 5:
        x[2] = 500.0 * hazard.rate.weight.detach().sign()[0]
    loss = -hazard(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(t, loss.item())

# truth:
# {"phase": "forward", "op": "aten.log1p.default", "module": "", "step": 5, "kind": "inf", "samples": [2], "cause": "log-of-zero", "exit": 3}
