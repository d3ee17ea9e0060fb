import torch
from torch import nn


class NonStationaryNorm(nn.Module):
    """Centre and scale of what was observed, per series and channel, and the way back."""

    def forward(self, x, observed):
        count = observed.sum(dim=1, keepdim=True)
        mean = (x * observed).sum(dim=1, keepdim=True) / count
        centred = (x - mean) * observed
        deviation = torch.sqrt(centred.square().sum(dim=1, keepdim=True) / count + 1e-5)
        return centred / deviation, mean, deviation


class Imputer(nn.Module):
    def __init__(self, steps, channels, width=32):
        super().__init__()
        self.norm = NonStationaryNorm()
        self.mix_time = nn.Linear(steps, steps)
        self.mix_channels = nn.Sequential(
            nn.Linear(2 * channels, width), nn.ReLU(), nn.Linear(width, channels)
        )

    def forward(self, x, observed):
        normal, mean, deviation = self.norm(x, observed)
        smooth = self.mix_time(normal.transpose(1, 2)).transpose(1, 2)
        return self.mix_channels(torch.cat([smooth, observed], dim=2)) * deviation + mean


def sensors(batch, steps, channels, missing, generator):
    phase = 6.28 * torch.rand(batch, 1, channels, generator=generator)
    time = torch.linspace(0, 6, steps).view(1, -1, 1)
    values = torch.sin(time + phase) + 0.1 * torch.randn(batch, steps, channels, generator=generator)
    observed = (torch.rand(batch, steps, channels, generator=generator) > missing).float()
    return values, observed


def train(missing_rates):
    generator = torch.Generator().manual_seed(11)
    torch.manual_seed(11)
    model = Imputer(steps=10, channels=3)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for missing in missing_rates:
        values, observed = sensors(6, 10, 3, missing, generator)
        filled = model(values * observed, observed)
        loss = ((filled - values) * (1 - observed)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"missing {missing:.1f}  loss {loss.item():.5f}")


train([0.1, 0.2, 0.3, 0.4, 0.5, 0.8, 0.9])
