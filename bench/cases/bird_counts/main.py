"""Predict how many birds a listener will hear, from weather and season."""

import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(0)


def excursions(count):
    """Temperature, wind, hour, day of the year; and the number of birds."""
    weather = rng.normal(size=(count, 4)).astype(np.float32)
    rate = np.exp(1.2 + 0.5 * weather[:, 0] - 0.3 * weather[:, 1])
    return torch.from_numpy(weather), torch.from_numpy(rng.poisson(rate).astype(np.float32))


class CountModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 12)
        self.rate = nn.Linear(12, 1)
        nn.init.constant_(self.rate.bias, 4.0)

    def forward(self, weather):
        return self.rate(torch.tanh(self.hidden(weather))).squeeze(1)


torch.manual_seed(0)
model = CountModel()
criterion = nn.PoissonNLLLoss(log_input=False)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)

for evening in range(10):
    weather, birds = excursions(64)

    def closure(weather=weather, birds=birds):
        optimizer.zero_grad()
        loss = criterion(model(weather), birds)
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    print(f"evening {evening}: {loss.item():.4f}")
