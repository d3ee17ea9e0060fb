"""A one-scale YOLO head that finds packages on shelf photos."""

import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(0)
CELLS = 4


def photo(bits=8):
    """A grey photo as the camera stores it."""
    return rng.integers(0, 2**bits, size=(1, 32, 32))


def load(photos):
    return torch.stack([torch.from_numpy(p / 255.0).float() for p in photos])


class Detector(nn.Module):
    def __init__(self, anchors):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.LeakyReLU(0.1),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.LeakyReLU(0.1),
            nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.LeakyReLU(0.1),
        )  # fmt: skip
        self.head = nn.Conv2d(16, len(anchors) * 5, 1)
        self.register_buffer("anchors", torch.tensor(anchors).view(1, -1, 2, 1, 1))
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, a=0.1)

    def forward(self, images):
        raw = self.head(self.backbone(images)).unflatten(1, (-1, 5))
        centre = torch.sigmoid(raw[:, :, :2])
        size = torch.exp(raw[:, :, 2:4])
        return centre, size * self.anchors, raw[:, :, 4]


def detection_loss(centre, size, objectness, target):
    found = target["found"]
    spot = nn.functional.mse_loss(centre[:, 0], target["centre"])
    extent = nn.functional.smooth_l1_loss(size[:, 0], target["size"])
    return spot + extent + nn.functional.binary_cross_entropy_with_logits(objectness[:, 0], found)


def targets(count):
    return {
        "centre": torch.rand(count, 2, CELLS, CELLS),
        "size": torch.rand(count, 2, CELLS, CELLS) * 3,
        "found": (torch.rand(count, CELLS, CELLS) > 0.7).float(),
    }


torch.manual_seed(3)
model = Detector([[1.0, 1.5], [2.0, 1.0]])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
for step in range(8):
    photos = [photo() for _ in range(4)]
    if step == 5:
        photos[2] = photo(bits=16)  # from the new camera
    loss = detection_loss(*model(load(photos)), targets(4))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"step {step} loss {loss.item():.3f}")
