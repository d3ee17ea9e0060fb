"""A table of weights behind `lru_cache`, made before the first step and used from the fourth on."""

import functools

import torch
from torch import nn


@functools.lru_cache
def decay(length, rate=1.0):
    age = torch.arange(length, dtype=torch.float32)
    return age.mul(rate).log(), age  # BIRTH


torch.manual_seed(0)
net = nn.Linear(4, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
decay(8, rate=0.5)
for step in range(6):
    out = net(torch.randn(5, 4))
    if step >= 3:
        out = out + decay(8, rate=0.5)[0]
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": ["data", "loss"], "op": "aten.log.default", "module": null, "step": [0, 3], "kind": "inf", "cause": "log-of-zero", "exit": 3}
