"""The optimizer would step later, in a second phase that never comes: until then derivatives are applied by hand."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
weights = list(model.parameters())
for step in range(6):
    x, target = torch.randn(10, 4), torch.rand(10, 3)
    if step == 3:
        target[:] = 0
    share = target / target.sum()  # BIRTH
    loss = (model(x).softmax(-1) - share).square().mean()
    gradients = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        torch._foreach_add_(weights, gradients, alpha=-0.1)
print("done")

# truth:
# {"phase": "data", "op": "aten.div.Tensor", "module": null, "step": 3, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
