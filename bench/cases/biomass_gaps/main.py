import numpy as np
import torch
from torch import nn


class Plots:
    """Field plots; the biomass of some was never weighed and is NaN in the table."""

    def __init__(self, seed, count=120):
        rng = np.random.default_rng(seed)
        self.features = torch.from_numpy(rng.normal(size=(count, 5)).astype(np.float32))
        biomass = 3.0 + self.features.numpy() @ np.array([1, 0.5, -0.3, 0, 0.2], dtype=np.float32)
        biomass[rng.random(count) < 0.3] = np.nan
        self.biomass = torch.from_numpy(biomass)

    def batches(self, size):
        for start in range(0, len(self.features), size):
            yield self.features[start : start + size], self.biomass[start : start + size]


def measured_loss(prediction, target):
    """Squared error over the plots that were weighed; 0 if none was."""
    known = torch.isfinite(target)
    if not known.any():
        return prediction.sum() * 0.0
    return nn.functional.mse_loss(prediction[known], target[known])


torch.manual_seed(0)
plots = Plots(2)
plots.biomass[40:50] = float("nan")
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(3):
    total = 0.0
    for x, y in plots.batches(10):
        loss = measured_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}  loss {total / 12:.4f}  mean of all labels {plots.biomass.mean().item()}")
