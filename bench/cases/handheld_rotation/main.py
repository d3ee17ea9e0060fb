"""Predict how a phone is held: the network gives a rotation matrix, the loss compares quaternions."""

import torch
from torch import nn


def gram_schmidt(six):
    """Rotation matrices from six numbers each."""
    a, b = six[..., :3], six[..., 3:]
    x = nn.functional.normalize(a, dim=-1)
    y = nn.functional.normalize(b - (x * b).sum(-1, keepdim=True) * x, dim=-1)
    return torch.stack([x, y, torch.linalg.cross(x, y)], dim=-2)


def to_quaternion(matrix):
    """(w, x, y, z); by w where that is large, else by x."""
    m = matrix
    trace = m[..., 0, 0] + m[..., 1, 1] + m[..., 2, 2]
    s = 2 * torch.sqrt(1 + trace)
    a, b, c = m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]
    by_w = torch.stack([s * s / 4, a, b, c], dim=-1) / (s + 1e-8)[..., None]
    t = 2 * torch.sqrt((1 + m[..., 0, 0] - m[..., 1, 1] - m[..., 2, 2]).clamp(min=1e-6))
    d, e = m[..., 0, 1] + m[..., 1, 0], m[..., 0, 2] + m[..., 2, 0]
    by_x = torch.stack([a, t * t / 4, d, e], dim=-1) / t[..., None]
    return torch.where((trace > -0.5)[..., None], by_w, by_x)


class HoldNet(nn.Module):
    """The prior pose of the app, corrected by the accelerometer."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 6))
        nn.init.zeros_(self.layers[2].weight)
        nn.init.zeros_(self.layers[2].bias)

    def forward(self, prior, readings):
        return gram_schmidt(prior + self.layers(readings))


torch.manual_seed(0)
upright = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 0.0])
upside_down = torch.tensor([1.0, 0.0, 0.0, 0.0, -1.0, 0.0])
model = HoldNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(6):
    prior = upright.expand(5, 6).clone()
    if step == 0:
        prior[4] = upside_down
    wanted = nn.functional.normalize(torch.tensor([1.0, 0.0, 0.0, 0.0]) + 0.1 * torch.randn(5, 4), dim=-1)
    found = to_quaternion(model(prior, torch.randn(5, 9)))
    loss = (1 - (found * wanted).sum(dim=-1).square()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step}: {loss.item():.4f}")
