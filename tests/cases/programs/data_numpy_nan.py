import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(0)
table = rng.normal(size=(40, 6)).astype("float32")
table[27, 4] = np.nan  # a missing measurement
labels = torch.from_numpy(rng.integers(0, 2, size=40))
x = torch.from_numpy(table)  # BIRTH
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, start in enumerate(range(0, 40, 8)):
    rows = slice(start, start + 8)
    loss = nn.functional.cross_entropy(model(x[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "data", "op": null, "module": null, "step": [-1, 3], "kind": "nan", "cause": "bad-input", "exit": 3}
