import torch
from torch import nn


class NormalisedSGD(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                direction = p.grad / p.grad.norm()  # BIRTH
                p.add_(direction, alpha=-group["lr"])


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))
optimizer = NormalisedSGD(model.parameters(), lr=0.01)
for step in range(6):
    x = torch.randn(4, 3)
    loss = model(x).mean()
    if step == 3:
        loss = loss * 0  # this batch was filtered out
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(sum(p.sum().item() for p in model.parameters()))

# truth:
# {"phase": "optimizer", "op": "aten.div.Tensor", "module": null, "step": 3, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
