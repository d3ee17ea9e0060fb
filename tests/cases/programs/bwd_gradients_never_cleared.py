"""Nobody clears the gradients: they add up over the steps, until their sum leaves half precision."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).half()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-9)
for step in range(6):
    loss = net(torch.ones(4, 8).half()).mean() * 20000.0  # OR HERE
    loss.backward()  # BIRTH
    optimizer.step()

# truth:
# {
#   "phase": "backward",
#   "op": [null, "aten.add_.Tensor"],
#   "module": [null, "2"],
#   "step": 3,
#   "kind": "inf",
#   "cause": "half-overflow",
#   "tempting": ["transient-fault"],
#   "exit": 3
# }
