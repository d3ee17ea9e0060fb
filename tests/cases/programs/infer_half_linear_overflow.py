import torch
from torch import nn

torch.manual_seed(0)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))  # BIRTH


mlp = MLP()
with torch.no_grad():
    mlp.up.weight.mul_(100)
    mlp.down.weight.fill_(8.0)
mlp = mlp.half().eval()
with torch.no_grad():
    for k in range(3):
        x = torch.ones(2, 16, dtype=torch.half) * (0.1 if k < 2 else 20.0)
        y = mlp(x)
        print(k, y.float().mean().item())

# truth:
# {"phase": "forward", "op": "aten.addmm.default", "module": "down", "step": 2, "kind": "inf", "samples": [0, 1], "cause": "half-overflow", "exit": 3}
