"""Estimate camera motion between two depth frames from measured optical flow."""

import torch
from torch import nn

HEIGHT, WIDTH, FOCAL = 12, 16, 20.0


class PoseNet(nn.Module):
    """Six numbers per frame pair: three small rotations and a translation, zero at the start."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * 3 * 4, 6),
        )  # fmt: skip
        nn.init.zeros_(self.layers[-1].weight)
        nn.init.zeros_(self.layers[-1].bias)

    def forward(self, depth, flow):
        return self.layers(torch.cat([depth[:, None], flow], dim=1))


def pixel_rays():
    v, u = torch.meshgrid(torch.arange(HEIGHT) - HEIGHT / 2, torch.arange(WIDTH) - WIDTH / 2, indexing="ij")
    return torch.stack([u / FOCAL, v / FOCAL, torch.ones_like(u)])


def predicted_flow(depth, pose):
    """Where every pixel goes when the camera moves."""
    rays = pixel_rays()
    points = depth[:, None] * rays
    turn = torch.linalg.cross(pose[:, :3, None, None].expand_as(points), points, dim=1)
    moved = points + turn + pose[:, 3:, None, None]
    landed = moved[:, :2] / moved[:, 2:]
    return FOCAL * (landed - rays[:2])


def frame_pairs(count, generator):
    depth = 1.0 + 3.0 * torch.rand(count, HEIGHT, WIDTH, generator=generator)
    motion = 0.05 * torch.randn(count, 6, generator=generator)
    return depth, predicted_flow(depth, motion)


generator = torch.Generator().manual_seed(4)
torch.manual_seed(4)
frames = [frame_pairs(4, generator) for _ in range(8)]
frames[0][0][3, 5, 9:12] = 0.0  # the sensor has no reading behind shiny edges

net = PoseNet()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step, (depth, flow) in enumerate(frames):
    pose = net(depth, flow)
    loss = nn.functional.smooth_l1_loss(predicted_flow(depth, pose), flow)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step}: {loss.item():.4f}")
