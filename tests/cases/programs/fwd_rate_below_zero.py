"""A linear decay of the rate that was planned for fewer steps than are made: it goes on below zero, and every
update climbs the loss."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 4)
for step in range(200):
    x = torch.randn(32, 4)
    loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    decay.step()

# truth:
# {
#   "phase": "forward",
#   "op": "aten.addmm.default",
#   "module": "2",
#   "step": 19,
#   "kind": "inf",
#   "cause": "bad-hyperparameter",
#   "also": ["divergence"],
#   "exit": 3
# }
