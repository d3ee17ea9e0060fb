"""Pure half precision and four micro-batches: the gradient of each is finite, their sum is not."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).half()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-7)
for step in range(4):
    optimizer.zero_grad()
    for _ in range(4):
        x = torch.randn(4, 8).abs().half()
        loss = net(x).mean() * (30000.0 if step == 2 else 1.0)  # OR HERE
        loss.backward()  # BIRTH
    print(max(p.grad.abs().max().item() for p in net.parameters()))
    optimizer.step()

# truth:
# {
#   "phase": "backward",
#   "op": "aten.add_.Tensor",
#   "module": "2",
#   "step": 2,
#   "kind": "inf",
#   "cause": "half-overflow",
#   "tempting": ["transient-fault"],
#   "exit": 3
# }
