import numpy as np
import torch
from torch import nn


def read_grid(n):
    """Sea surface temperatures; land points hold the fill value of the format."""
    rng = np.random.default_rng(3)
    grid = rng.normal(14.0, 4.0, size=(n, 12)).astype("float32")
    grid[41, 7] = 9.96921e36
    return torch.from_numpy(grid)


torch.manual_seed(0)
grid = read_grid(64)
model = nn.Sequential(nn.Linear(11, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step, rows in enumerate(grid.split(8)):
    x, y = torch.cat([rows[:, :7], rows[:, 8:]], dim=1), rows[:, 7:8]
    error = model(x) - y
    loss = (error**2).mean()  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(step, round(loss.item(), 3))

# truth:
# {"phase": "loss", "op": "aten.pow.Tensor_Scalar", "module": null, "step": 5, "kind": "inf", "samples": [1], "cause": "bad-input", "also": ["overflow"], "tempting": ["divergence"], "exit": 3}
