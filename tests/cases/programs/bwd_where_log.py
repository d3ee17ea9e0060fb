import torch
from torch import nn


class LogEnergy(nn.Module):
    def forward(self, x):
        x = x.square()
        logged = torch.log(x)  # BIRTH
        return torch.where(x > 0, logged, torch.zeros_like(x))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4, bias=False), LogEnergy(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for i in range(3):
    x = torch.randn(5, 4)
    if i == 1:
        x[2] = 0
    loss = model(x).square().mean()
    print(i, loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": "1", "step": 1, "kind": "nan", "samples": [2], "cause": "where-gradient", "tempting": ["log-of-zero"], "exit": 3}
