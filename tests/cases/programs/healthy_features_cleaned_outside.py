import torch
from torch import nn


class Standardise(nn.Module):
    def forward(self, x):
        return (x - x.mean(0)) / x.std(0)  # 0 / 0 for a sensor that never moves


torch.manual_seed(0)
standardise = Standardise()
parts = []
for day in range(4):
    readings = torch.randn(16, 5)
    readings[:, 2] = 3.0
    parts.append(torch.nan_to_num(standardise(readings)))
features = torch.cat(parts)

model = nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(5):
    loss = (model(features) - features.sum(-1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")

# truth:
# {"healthy": true, "exit": 0, "patient": true}
