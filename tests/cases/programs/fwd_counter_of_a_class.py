import itertools

import torch
from torch import nn


class Fade(nn.Module):
    calls = itertools.count(1)

    def forward(self, x):
        return x / (5 - next(self.calls))  # BIRTH


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), Fade(), nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(7):
    loss = nn.functional.cross_entropy(model(torch.randn(4, 4)), torch.tensor([0, 1, 1, 0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "1", "step": 4, "kind": "inf", "cause": "divide-by-zero", "tempting": ["transient-fault"], "exit": 3}
