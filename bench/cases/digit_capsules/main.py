"""Explain small images by a mixture of moving templates (part capsules)."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Parts(nn.Module):
    def __init__(self, parts=4, side=16):
        super().__init__()
        self.templates = nn.Parameter(0.5 * torch.rand(parts, 1, 5, 5))
        self.pose = nn.Sequential(
            nn.Flatten(), nn.Linear(side * side, 32), nn.ReLU(), nn.Linear(32, 3 * parts)
        )
        self.log_scale = nn.Parameter(torch.tensor(-1.0))
        self.parts, self.side = parts, side

    def forward(self, image):
        """Rendered templates, presence logits and the common scale of the pixel noise."""
        shift_x, shift_y, presence = self.pose(image).view(-1, self.parts, 3).unbind(dim=-1)
        theta = torch.zeros(len(image) * self.parts, 2, 3)
        theta[:, 0, 0] = theta[:, 1, 1] = 1.5
        theta[:, 0, 2], theta[:, 1, 2] = shift_x.flatten().tanh(), shift_y.flatten().tanh()
        grid = F.affine_grid(theta, (len(theta), 1, self.side, self.side), align_corners=False)
        drawn = F.grid_sample(self.templates.repeat(len(image), 1, 1, 1), grid, align_corners=False)
        return drawn.view(len(image), self.parts, self.side, self.side), presence, self.log_scale.exp()


def mixture_log_likelihood(image, drawn, presence, scale):
    """Log of the weighted sum of the parts' densities of the whole image."""
    pixels = -0.5 * ((image - drawn) / scale).square() - scale.log() - 0.5 * math.log(2 * math.pi)
    density = torch.exp(pixels.sum(dim=(2, 3)))
    return torch.log((presence.softmax(dim=1) * density).sum(dim=1) + 1e-30)


def strokes(count, side=16):
    image = torch.zeros(count, 1, side, side)
    for i in range(count):
        image[i, 0, :, int(torch.randint(4, 12, ()))] = 0.6
    return image


torch.manual_seed(0)
model = Parts()
optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-2)
for step in range(60):
    image = strokes(16)
    loss = -mixture_log_likelihood(image, *model(image)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.3f}")
