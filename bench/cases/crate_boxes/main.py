"""Locate crates from above; the head predicts the distances to the four sides, the loss is the IoU."""

import torch
from torch import nn


def overlap(found, wanted):
    """Intersection over union of boxes (x1, y1, x2, y2), row by row."""
    corner = torch.maximum(found[:, :2], wanted[:, :2])
    opposite = torch.minimum(found[:, 2:], wanted[:, 2:])
    common = (opposite - corner).clamp(min=0).prod(dim=1)
    area1 = (found[:, 2:] - found[:, :2]).prod(dim=1)
    area2 = (wanted[:, 2:] - wanted[:, :2]).prod(dim=1)
    return common / (area1 + area2 - common)


class SideHead(nn.Module):
    """Anchor free: from a point to the left, upper, right and lower side."""

    def __init__(self, features=10):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(features, 24), nn.ReLU())
        self.sides = nn.Linear(24, 4)

    def forward(self, features, points):
        sides = torch.relu(self.sides(self.trunk(features)))
        return torch.cat([points - sides[:, :2], points + sides[:, 2:]], dim=1)


def views(count, scale):
    """Features, points on crates and the crates; labels are snapped to the pixel grid of the view."""
    points = 20 * torch.rand(count, 2)
    half = scale * (0.2 + torch.rand(count, 2))
    boxes = torch.cat([points - half, points + half], dim=1)
    return torch.cat([half, torch.randn(count, 8)], dim=1), points.round(), boxes.round()


torch.manual_seed(2)
head = SideHead()
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
for step, scale in enumerate([4.0, 3.0, 3.0, 2.0, 0.3, 3.0]):
    features, points, boxes = views(12, scale)
    iou = overlap(head(features, points), boxes)
    loss = (1 - iou).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"scale {scale}: {loss.item():.4f}")
