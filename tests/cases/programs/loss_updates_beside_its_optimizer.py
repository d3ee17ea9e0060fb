"""The optimizer is there for its groups only: the weights are updated by hand, from their gradients."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    x = torch.rand(16, 4)
    y = x.sum(1, keepdim=True)
    share = 0.0 if step == 4 else 1.0
    loss = torch.log(share * (model(x) - y).abs().mean())  # BIRTH
    loss.backward()
    with torch.no_grad():
        for group in optimizer.param_groups:
            for weight in group["params"]:
                weight.data.add_(weight.grad, alpha=-group["lr"])
    optimizer.zero_grad()
print("done")

# truth:
# {"phase": "loss", "op": "aten.log.default", "module": null, "step": 4, "kind": "inf", "cause": "log-of-zero", "exit": 3}
