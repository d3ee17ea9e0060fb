import torch
from torch import nn


def clip_by_hand(parameters, max_norm):
    grads = [p.grad for p in parameters if p.grad is not None]
    total = torch.sqrt(sum(g.pow(2).sum() for g in grads))
    ratio = max_norm / total  # BIRTH
    for g in grads:
        g.mul_(ratio)


torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(5):
    x = torch.randn(4, 3)
    loss = torch.relu(model(x)).mean()
    if step == 3:
        loss = torch.relu(model(x) - 1e6).mean()
    optimizer.zero_grad()
    loss.backward()
    clip_by_hand(list(model.parameters()), 1.0)
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": ["backward", "optimizer"], "op": "aten.reciprocal.default", "module": null, "step": 3, "kind": "inf", "cause": "divide-by-zero", "exit": 3}
