import random

import torch
from torch import nn

torch.manual_seed(0)
random.seed(5)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class Gate(nn.Module):
    def forward(self, x):
        return x / (x[:, :1] - x[:, 1:2]).abs()  # BIRTH


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.gate = Gate()

    def forward(self, x):
        for block in self.blocks:
            if random.random() < 0.5:
                continue
            x = block(x)
        return self.gate(x) if random.random() < 0.25 else x


net = Stack()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
for step in range(40):
    x = torch.randn(3, 6)
    if step >= 12:
        x[1] = 0.5
        with torch.no_grad():
            for block in net.blocks:
                block.linear.weight.fill_(0.1)
                block.linear.bias.fill_(0.1)
    loss = net(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "gate", "step": 16, "kind": "inf", "cause": "divide-by-zero", "exit": 3}
