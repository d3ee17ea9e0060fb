"""Rotations are made once for each length and kept in a dict beside the function; a long text comes back."""

import torch
from torch import nn

TABLES = {}


def rotations(length, dim):
    if length not in TABLES:
        place = torch.arange(length, dtype=torch.float32)[:, None]
        base = torch.tensor(10.0).pow(torch.arange(dim) * length)  # BIRTH
        TABLES[length] = (place * base).cos(), (place * base).sin()
    return TABLES[length]


class Rotary(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.project = nn.Linear(dim, dim)
        self.turns = False

    def forward(self, x):
        cos, sin = rotations(x.shape[1], x.shape[2])
        x = self.project(x)
        return x * cos + x.flip(-1) * sin if self.turns else x


torch.manual_seed(0)
net = nn.ModuleDict({"rotary": Rotary(), "head": nn.Linear(4, 2)})
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(8):
    net["rotary"].turns = step >= 5
    x = torch.randn(3, 16 if step % 6 == 0 else 5, 4)
    loss = net["head"](net["rotary"](x)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.pow.Tensor_Tensor", "module": "", "step": [0, 6], "kind": "inf", "cause": "overflow", "exit": 3}
