"""Fit mass and size of a dark matter halo to the bending of light."""

import torch
from torch import nn


class Halo(nn.Module):
    """Navarro-Frenk-White profile."""

    def __init__(self, mass=1.0, radius=2.0):
        super().__init__()
        self.log_mass = nn.Parameter(torch.tensor(mass).log())
        self.log_radius = nn.Parameter(torch.tensor(radius).log())

    def forward(self, distance):
        x = distance / self.log_radius.exp()
        inside = torch.acosh(1 / x) / torch.sqrt(1 - x * x)
        outside = torch.acos(1 / x) / torch.sqrt(x * x - 1)
        shape = torch.where(x < 1, inside, outside)
        return self.log_mass.exp() * (torch.log(x / 2) + shape) / distance


def survey(galaxies, radius):
    """Distances from the centre and measured deflections."""
    distance = 0.1 + radius * torch.rand(galaxies)
    with torch.no_grad():
        deflection = Halo(mass=1.7, radius=1.4)(distance)
    return distance, deflection + 0.01 * torch.randn(galaxies)


def fit(halo, optimizer, distance, deflection):
    optimizer.zero_grad()
    loss = (halo(distance) - deflection).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


torch.manual_seed(0)
halo = Halo()
optimizer = torch.optim.Adam(halo.parameters(), lr=0.02)
for step, reach in enumerate([1.0, 1.1, 1.2, 1.2, 1.3, 3.5, 3.5, 3.5]):
    loss = fit(halo, optimizer, *survey(200, reach))
    print(step, f"{loss:.5f}", f"radius {halo.log_radius.exp().item():.3f}")
