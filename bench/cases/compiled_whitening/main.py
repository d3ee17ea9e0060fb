import torch
from torch import nn


def whiten(x):
    """Brings each column to variance one, with the short formula for the variance."""
    mean = x.mean(dim=0)
    variance = (x * x).mean(dim=0) - mean * mean
    return (x - mean) * torch.rsqrt(variance)


class Probe(nn.Module):
    def __init__(self, columns=6):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(columns, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, x):
        return self.net(whiten(x)).squeeze(1)


def measurements(day):
    """Temperature in kelvin, pressure in pascal and so on; on quiet days they hardly move."""
    generator = torch.Generator().manual_seed(day)
    level = torch.tensor([290.0, 101325.0, 55.0, 4.0, 1.2, 700.0])
    spread = torch.tensor([5.0, 400.0, 10.0, 1.0, 0.1, 30.0])
    if day == 2:
        spread = spread * 1e-3
    return level + spread * torch.randn(64, 6, generator=generator)


torch.manual_seed(0)
model = Probe()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for day in range(4):
    x = measurements(day)
    loss = nn.functional.mse_loss(compiled(x), torch.linspace(-1, 1, 64))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"day {day}  loss {loss.item():.5f}")
