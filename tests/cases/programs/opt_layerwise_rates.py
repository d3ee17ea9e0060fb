import torch
from torch import nn


class LayerwiseSGD(torch.optim.Optimizer):
    """Every layer moves by the same share of its own size."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                trust = p.norm() / p.grad.norm()  # BIRTH
                p.add_(p.grad * trust, alpha=-group["lr"])


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = LayerwiseSGD(model.parameters(), lr=0.01)
for step in range(6):
    x, y = torch.randn(64, 8), torch.randn(64, 4)
    weight = 1.0 if step < 3 else 1e-6  # rare classes count less in the second phase
    with torch.autocast("cpu", dtype=torch.float16):
        output = model(x)
    loss = (weight * (output.float() - y).square()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "optimizer", "op": "aten.div.Tensor", "module": null, "step": 3, "kind": "inf", "cause": "amp-misuse", "also": ["half-underflow"], "tempting": ["divide-by-zero"], "exit": 3}
