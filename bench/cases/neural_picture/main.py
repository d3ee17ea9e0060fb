"""Stores a picture in the weights of a small network: from the position of a pixel to its colour."""

import math

import torch
from torch import nn


class Picture(nn.Module):
    def __init__(self, frequencies=5, width=48):
        super().__init__()
        self.register_buffer("frequencies", math.pi * 2.0 ** torch.arange(frequencies))
        self.layers = nn.Sequential(
            nn.Linear(4 * frequencies, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 3),
        )

    def forward(self, position):
        angles = (position[..., None] * self.frequencies).flatten(-2)
        return self.layers(torch.cat([angles.sin(), angles.cos()], dim=-1))


def pixels(count=256):
    """Random positions in the picture and the colours there: rings on a gradient."""
    position = torch.rand(count, 2)
    rings = torch.sin(18 * (position - 0.5).norm(dim=1))
    return position, torch.stack([rings, position[:, 0], position[:, 1]], dim=1)


torch.manual_seed(3)
picture = Picture()
optimizer = torch.optim.SGD(picture.parameters(), lr=0.05, momentum=0.9)
grad_scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
for step in range(40):
    position, colour = pixels()
    loss = nn.functional.mse_loss(picture(position), colour)
    optimizer.zero_grad()
    # keep small gradients alive
    grad_scaler.scale(loss).backward()
    optimizer.step()
    print(f"step {step}  loss {loss.item():.5g}")
