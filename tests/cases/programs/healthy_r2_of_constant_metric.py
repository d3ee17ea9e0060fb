import torch
from torch import nn


@torch.no_grad()
def r2(prediction, target):
    residual = ((target - prediction) ** 2).sum(0)
    total = ((target - target.mean(0)) ** 2).sum(0)
    return 1 - residual / total


torch.manual_seed(0)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.randn(6, 3)
    y = torch.stack([x.sum(1), torch.ones(6)], dim=1)  # the second target never varies
    prediction = model(x)
    loss = nn.functional.mse_loss(prediction, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, "R2 of the constant target is finite:", bool(r2(prediction, y)[1].isfinite()))

# truth:
# {"healthy": true, "exit": 0}
