"""Fit colour and disparity of rays through a small scene, as radiance fields do."""

import torch
from torch import nn

torch.manual_seed(0)
SAMPLES = 12


class Field(nn.Module):
    """Density and colour of every point of space."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.density = nn.Linear(32, 1)
        self.colour = nn.Linear(32, 3)
        nn.init.constant_(self.density.bias, 1.0)

    def forward(self, points):
        features = self.trunk(torch.cat([points, torch.sin(3 * points), torch.cos(3 * points)], dim=-1))
        return self.density(features).squeeze(-1), torch.sigmoid(self.colour(features))


class Renderer(nn.Module):
    def __init__(self, near=1.0, far=4.0):
        super().__init__()
        self.field = Field()
        self.register_buffer("depths", torch.linspace(near, far, SAMPLES))

    def forward(self, origins, directions):
        points = origins[:, None] + self.depths[:, None] * directions[:, None]
        density, colour = self.field(points)
        spacing = self.depths[1] - self.depths[0]
        alpha = 1 - torch.exp(-torch.relu(density) * spacing)
        through = torch.cumprod(torch.cat([torch.ones(len(alpha), 1), 1 - alpha + 1e-10], dim=1), dim=1)
        weights = alpha * through[:, :-1]
        opacity = weights.sum(dim=1)
        depth = (weights * self.depths).sum(dim=1)
        nearness = opacity / depth
        return (weights[..., None] * colour).sum(dim=1), nearness


def bundle(count):
    """Rays from one side of a ball in an empty room; those that miss it are black."""
    origins = torch.tensor([0.0, 0.0, -3.0]).expand(count, 3)
    aim = torch.randn(count, 3) * torch.tensor([0.6, 0.6, 0.0])
    directions = nn.functional.normalize(aim - origins, dim=1)
    closest = (directions * -origins).sum(1, keepdim=True) * directions + origins
    hit = closest.norm(dim=1) < 1.0
    colour = torch.where(hit[:, None], torch.tensor([0.9, 0.4, 0.1]), torch.zeros(3))
    return origins, directions, colour, hit / 2.5


model = Renderer()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
for step in range(60):
    origins, directions, colour, nearness = bundle(64)
    seen, estimated = model(origins, directions)
    loss = (seen - colour).square().mean() + 0.1 * (estimated - nearness).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.5f}")
