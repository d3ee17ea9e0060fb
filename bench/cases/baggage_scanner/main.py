"""Find the densities of the parts of a suitcase from the attenuation of X-rays."""

import torch
from torch import nn

PARTS = {
    "shell": [[-4.0, -3.0, -2.0], [4.0, 3.0, 2.0]],
    "books": [[-3.0, -2.0, -1.6], [0.0, 2.0, 0.0]],
    "bottle": [[1.0, -1.0, -1.0], [2.0, 0.5, 1.5]],
    "laptop": [[-2.5, -2.5, 0.5], [3.5, 2.5, 1.0]],
}
DENSITY = torch.tensor([0.05, 0.7, 1.0, 1.9])


class Suitcase(nn.Module):
    def __init__(self, parts):
        super().__init__()
        corners = torch.tensor(list(parts.values()))
        self.register_buffer("low", corners[:, 0])
        self.register_buffer("high", corners[:, 1])
        self.log_density = nn.Parameter(torch.zeros(len(parts)))

    def chords(self, origins, directions):
        """How long each ray runs inside each part (slab method)."""
        inverse = (1.0 / directions)[:, None]
        near = (self.low - origins[:, None]) * inverse
        far = (self.high - origins[:, None]) * inverse
        entry = torch.minimum(near, far).amax(dim=-1)
        leave = torch.maximum(near, far).amin(dim=-1)
        return (leave - entry).clamp(min=0.0)

    def forward(self, origins, directions):
        return self.chords(origins, directions) @ self.log_density.exp()


def fan(height, count=48):
    """Level rays from one source, as the scanner takes them slice by slice."""
    angle = (torch.rand(count) - 0.5) * 0.8
    origins = torch.tensor([-10.0, 0.0, height]).expand(count, 3)
    return origins, torch.stack([angle.cos(), angle.sin(), torch.zeros(count)], dim=1)


def scan(case, rays):
    with torch.no_grad():
        return case.chords(*rays) @ DENSITY + 0.01 * torch.randn(len(rays[0]))


torch.manual_seed(0)
case = Suitcase(PARTS)
optimizer = torch.optim.Adam(case.parameters(), lr=0.1)
slices = torch.linspace(-1.75, 1.75, 15)
for height in slices.tolist():
    rays = fan(height)
    loss = nn.functional.mse_loss(case(*rays), scan(case, rays))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"slice at {height:+.2f}: {loss.item():.5f}")
