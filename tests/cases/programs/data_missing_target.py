import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(0)
table = rng.normal(size=(64, 6)).astype("float32")
table[:, -1] = table[:, :5].sum(axis=1)
table[37, -1] = np.nan  # nobody measured this one
values = torch.from_numpy(table)  # BIRTH
features, targets = values[:, :-1], values[:, -1]

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step, rows in enumerate(torch.arange(64).split(16)):
    loss = nn.functional.mse_loss(model(features[rows]).squeeze(-1), targets[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "data", "op": null, "module": null, "step": 2, "kind": "nan", "samples": [5], "cause": "bad-input", "exit": 3}
