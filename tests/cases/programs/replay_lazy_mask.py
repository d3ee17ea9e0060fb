"""A bias that is made at the first call, kept in an attribute, and used from the third step on."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim=4, warm_up=3):
        super().__init__()
        self.query = nn.Linear(dim, dim)
        self.calls = 0
        self.warm_up = warm_up
        self._bias = None

    def bias(self, length):
        if self._bias is None:
            distance = (torch.arange(length)[:, None] - torch.arange(length)).abs().float()
            self._bias = 1 / distance  # BIRTH
        return self._bias

    def forward(self, x):
        bias = self.bias(x.shape[1])
        scores = self.query(x) @ x.transpose(1, 2)
        self.calls += 1
        if self.calls > self.warm_up:
            scores = scores + bias
        return torch.softmax(scores, -1) @ x


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), Attention())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(6):
    loss = net(torch.randn(2, 5, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.reciprocal.default", "module": "1", "step": [0, 3], "kind": "inf", "cause": "divide-by-zero", "exit": 3}
