import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
weight = 1e-4
for step in range(6):
    x = torch.randn(8, 6)
    fit = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1))
    smooth = (model(x + 0.01) - model(x)).square().mean()
    penalty = smooth * weight  # BIRTH
    optimizer.zero_grad()
    (fit + penalty).backward()
    optimizer.step()
    weight *= 1e10 if step < 2 else 1e300
    print(step, fit.item())

# truth:
# {"phase": "loss", "op": "aten.mul.Tensor", "module": null, "step": 3, "kind": "inf", "cause": "bad-hyperparameter", "exit": 3}
