import copy

import torch
from torch import nn


class Scaler(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("spread", torch.zeros(dim))

    def fit(self, x):
        self.mean.copy_(x.mean(0))
        self.spread.copy_(x.std(0))

    def forward(self, x):
        return (x - self.mean) / self.spread  # BIRTH


def follow(average, model, decay=0.9):
    with torch.no_grad():
        for a, p in zip(average.parameters(), model.parameters()):
            a.lerp_(p, 1 - decay)


torch.manual_seed(0)
x, y = torch.randn(40, 3) * 5 + 2, torch.randn(40, 1)
model = nn.Sequential(Scaler(3), nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
average = copy.deepcopy(model).eval()
model[0].fit(x)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(3):
    for i in range(0, 32, 8):
        loss = nn.functional.mse_loss(model(x[i : i + 8]), y[i : i + 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow(average, model)
    print(epoch, loss.item())
with torch.no_grad():
    print("averaged", nn.functional.mse_loss(average(x[32:]), y[32:]).item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "0", "step": 12, "kind": "inf", "cause": "stale-copy", "tempting": ["bad-weights", "divide-by-zero"], "exit": 3}
