import torch
from torch import nn


class Correlation(nn.Module):
    """Has no value where nothing varies."""

    def __init__(self):
        super().__init__()
        self.register_buffer("pairs", torch.zeros(0, 2))

    def update(self, predicted, wanted):
        self.pairs = torch.cat([self.pairs, torch.stack([predicted, wanted], 1)])

    def compute(self):
        centred = self.pairs - self.pairs.mean(0)
        return centred.prod(1).sum() / (centred.norm(dim=0).prod())

    def reset(self):
        self.pairs = self.pairs[:0]

    def forward(self, predicted, wanted):
        self.update(predicted, wanted)
        return self.compute()


class Imputing(nn.Module):
    """Returns what is missing along with the rest."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x, wanted):
        predicted = self.net(x)
        known = ~wanted.isnan()
        error = (predicted - torch.where(known, wanted, 0.0)).square() * known
        return error.sum() / known.sum(), predicted, wanted


torch.manual_seed(0)
model, correlation = Imputing(), Correlation()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(3):
    for step in range(4):
        wanted = torch.randn(6, 3)
        wanted[torch.rand(6, 3) < 0.3] = float("nan")
        loss, _, _ = model(torch.randn(6, 4), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        _, predicted, wanted = model(torch.randn(6, 4), wanted)
        print(epoch, loss.item(), correlation(predicted[:, 0], torch.ones(6)).item(), wanted.isnan().sum())
        correlation.reset()

# truth:
# {"healthy": true, "exit": 0}
