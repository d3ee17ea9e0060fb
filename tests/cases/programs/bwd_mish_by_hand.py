"""x * tanh(log(1 + exp(x))): tanh takes the infinity for 1, and the derivative of exp meets it again."""

import torch
from torch import nn


class Mish(nn.Module):
    def forward(self, x):
        return x * torch.tanh(torch.log(1 + torch.exp(x)))  # BIRTH


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), Mish(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(5):
    x = torch.randn(6, 4)
    if step == 3:
        with torch.no_grad():
            x[2] = net[0].weight[1] * 90 / net[0].weight[1].square().sum()
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.mul.Tensor", "module": "1", "step": 3, "kind": "nan", "samples": [2], "cause": "overflow", "tempting": ["inf-arithmetic", "where-gradient", "singular-gradient"], "exit": 3}
