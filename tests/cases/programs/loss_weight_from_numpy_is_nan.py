"""A weight of the penalty, computed in numpy from the spread of the last losses, which has become zero."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
losses = []
for step in range(8):
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
    fit = F.cross_entropy(net(x), y)
    losses.append(0.5 if step >= 4 else fit.item())
    last = np.array(losses[-2:])
    with np.errstate(all="ignore"):
        weight = float((last[-1] - last.mean()) / last.std()) if step else 1.0
    penalty = sum(p.square().sum() for p in net.parameters())
    loss = fit + weight * penalty  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {
#   "phase": "loss",
#   "op": "aten.mul.Tensor",
#   "module": null,
#   "step": 5,
#   "kind": "nan",
#   "cause": "bad-hyperparameter",
#   "also": ["bad-input", "divide-by-zero"],
#   "exit": 3
# }
