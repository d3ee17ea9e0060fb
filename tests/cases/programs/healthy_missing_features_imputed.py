import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(1)
table = rng.normal(size=(30, 4)).astype(np.float32)
table[rng.random((30, 4)) < 0.2] = np.nan
x = torch.from_numpy(table)
missing = torch.isnan(x)
mean = torch.nanmean(x, dim=0)
x = torch.where(missing, mean, x)
x = torch.cat([x, missing.float()], dim=1)
y = torch.from_numpy(rng.integers(0, 2, 30))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for epoch in range(3):
    for xb, yb in DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True):
        loss = nn.functional.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, f"{loss.item():.5f}")

# truth:
# {"healthy": true, "exit": 0}
