import torch
from torch import nn


@torch.compile(backend="eager")
def distance(a, b):
    return torch.sqrt(((a - b) ** 2).sum(dim=-1))  # BIRTH


torch.manual_seed(0)
encoder = nn.Linear(3, 3)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
for step in range(4):
    a, b = torch.randn(2, 5, 3)
    if step == 3:
        b = a.clone()
    loss = distance(encoder(a), encoder(b)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": null, "step": 3, "kind": "inf", "cause": "singular-gradient", "tempting": ["compiler-fault"], "exit": 3}
