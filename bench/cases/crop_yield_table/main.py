import io

import numpy as np
import torch
from torch import nn


def export(seed=3, rows=96):
    """Stands in for the file of the statistics office: a cell that nobody measured is empty."""
    rng = np.random.default_rng(seed)
    lines = ["rain,heat,nitrogen,acidity,yield"]
    for row in range(rows):
        cells = [f"{v:.3f}" for v in rng.normal([620, 14, 80, 6.3, 5.1], [90, 2, 25, 0.4, 0.8])]
        if row == 53:
            cells[4] = ""
        lines.append(",".join(cells))
    return "\n".join(lines)


table = np.genfromtxt(io.StringIO(export()), delimiter=",", skip_header=1, dtype=np.float32)
features = table[:, :4]
features = (features - features.mean(axis=0)) / features.std(axis=0)
x = torch.from_numpy(features)
y = torch.from_numpy(table[:, 4:])

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
criterion = nn.HuberLoss()
for epoch in range(2):
    for start in range(0, len(x), 16):
        batch = slice(start, start + 16)
        optimizer.zero_grad()
        loss = criterion(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch}  rows {start}-  loss {loss.item():.4f}")
