import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.g = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        mu = x.mean(-1, keepdim=True)
        var = (x - mu).pow(2).mean(-1, keepdim=True)
        return self.g * (x - mu) / torch.sqrt(var)  # BIRTH


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = Norm(dim)
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x + self.fc(self.norm(x)).relu()


torch.manual_seed(0)
trunk = nn.Sequential(*[Layer(6) for _ in range(4)], nn.Linear(6, 1))
optimizer = torch.optim.Adam(trunk.parameters(), lr=1e-3)
for step in range(11):
    x = torch.randn(5, 6)
    if step == 10:
        x[4] = 0.5  # a grey image
    loss = trunk(x).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("final", loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "0.norm", "step": 10, "kind": "nan", "samples": [4], "cause": "divide-by-zero", "exit": 3}
