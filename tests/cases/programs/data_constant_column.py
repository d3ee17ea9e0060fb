import torch
from torch import nn


def standardise(x):
    centred = x - x.mean(dim=0)
    return centred / x.std(dim=0)  # BIRTH


torch.manual_seed(0)
features = torch.randn(32, 5)
features[:, 2] = 1.0  # a constant column
targets = features[:, :1] * 3
features = standardise(features)
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(3):
    for i in range(0, 32, 8):
        loss = nn.functional.mse_loss(model(features[i : i + 8]), targets[i : i + 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())

# truth:
# {"phase": "data", "op": "aten.div.Tensor", "module": null, "step": [-1, 0], "kind": "nan", "cause": "divide-by-zero", "also": ["bad-input"], "exit": 3}
