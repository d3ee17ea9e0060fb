"""Describes image patches by 64 numbers and matches them between two aerial photos, in half precision."""

import torch
from torch import nn


class Descriptor(nn.Module):
    def __init__(self, channels=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(16, affine=False),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(32, affine=False),
            nn.ReLU(),
            nn.Conv2d(32, channels, 4, bias=False),
        )

    def forward(self, patch, eps=1e-10):
        described = self.layers(patch).flatten(1) + eps
        return described / described.square().sum(dim=1, keepdim=True).sqrt()


def cut(photo, size=16):
    """All patches of a photo, one after the other."""
    rows = photo.unfold(0, size, size).unfold(1, size, size)
    return rows.reshape(-1, 1, size, size)


def match(first, second):
    similarity = first.float() @ second.float().T
    return similarity.argmax(dim=1), similarity.amax(dim=1)


torch.manual_seed(0)
model = Descriptor().half().eval()
flights = []
for flight in range(4):
    photo = torch.rand(32, 64)
    if flight == 2:
        photo[16:, 16:32] = 0  # beyond the edge of the mosaic
    flights.append(photo.half())

with torch.no_grad():
    known = model(cut(flights[0]))
    for number, photo in enumerate(flights[1:], start=1):
        partner, similarity = match(model(cut(photo)), known)
        print(number, partner.tolist(), f"mean similarity {similarity.mean():.4f}")
