"""Train the box branch of a pedestrian detector: offsets from anchors to labelled boxes."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class StreetLabels(Dataset):
    """Regions with their anchor and the annotated box in corner format."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(3)
        centre = 100 * torch.rand(count, 2, generator=generator)
        size = torch.tensor([10.0, 25.0]) * (0.6 + 0.8 * torch.rand(count, 2, generator=generator))
        self.anchors = torch.cat(
            [centre - torch.tensor([5.0, 12.0]), centre + torch.tensor([5.0, 12.0])], dim=1
        )
        self.boxes = torch.cat([centre - size / 2, centre + size / 2], dim=1)
        self.boxes[22] = torch.tensor([68.0, 13.0, 68.0, 41.0])  # hidden behind a lamp post, one pixel wide
        self.pooled = torch.cat([size / 25, torch.randn(count, 14, generator=generator)], dim=1)

    def __len__(self):
        return len(self.boxes)

    def __getitem__(self, index):
        return self.pooled[index], self.anchors[index], self.boxes[index]


def centre_form(corners):
    size = corners[:, 2:] - corners[:, :2]
    return corners[:, :2] + size / 2, size


def encode(boxes, anchors):
    box_centre, box_size = centre_form(boxes)
    anchor_centre, anchor_size = centre_form(anchors)
    shift = (box_centre - anchor_centre) / anchor_size
    stretch = torch.log(box_size / anchor_size)
    return torch.cat([shift, stretch], dim=1)


class BoxBranch(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))


torch.manual_seed(0)
branch = BoxBranch()
optimizer = torch.optim.SGD(branch.parameters(), lr=0.02, momentum=0.9)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=4)
for step, (pooled, anchors, boxes) in enumerate(DataLoader(StreetLabels(48), batch_size=6)):
    loss = F.smooth_l1_loss(branch(pooled), encode(boxes, anchors))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(f"{step}: loss_box {loss.item():.4f}")
