"""Refine the orientation of a camera by gradient descent on matched directions."""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=15)
parser.add_argument("--rate", type=float, default=0.05)
parser.add_argument("--prior", type=float, default=1e-3, help="how strongly the pose stays near the guess")
options = parser.parse_args()


def rotate(quaternion, points):
    """Turn points by a unit quaternion (w, x, y, z)."""
    w, axis = quaternion[0], quaternion[1:].expand_as(points)
    twice = 2 * torch.linalg.cross(axis, points)
    return points + w * twice + torch.linalg.cross(axis, twice)


def log_map(quaternion):
    """Rotation vector of a unit quaternion (half the angle times the axis)."""
    w, vector = quaternion[0], quaternion[1:]
    length = vector.norm().clamp(min=1e-8)
    half_angle = torch.acos(w.clamp(-1.0, 1.0))
    return vector * half_angle / length


torch.manual_seed(0)
directions = torch.nn.functional.normalize(torch.randn(40, 3), dim=1)
actual = torch.nn.functional.normalize(torch.tensor([1.0, 0.1, -0.2, 0.05]), dim=0)
observed = rotate(actual, directions) + 0.01 * torch.randn(40, 3)

pose = torch.tensor([1.0, 0.0, 0.0, 0.0], requires_grad=True)
optimizer = torch.optim.SGD([pose], lr=options.rate)
for step in range(options.steps):
    unit = pose / pose.norm()
    mismatch = (rotate(unit, directions) - observed).square().sum(dim=1).mean()
    loss = mismatch + options.prior * log_map(unit).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step:2d} {loss.item():.6f} {[round(x, 4) for x in pose.tolist()]}")
