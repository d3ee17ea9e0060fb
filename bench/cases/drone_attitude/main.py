"""Learn a drone's roll and pitch from raw sensors."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Attitude(nn.Module):
    """Which way is down, seen from the drone: the last estimate corrected by what the sensors saw."""

    def __init__(self):
        super().__init__()
        self.correction = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        nn.init.uniform_(self.correction[2].weight, -0.01, 0.01)
        nn.init.zeros_(self.correction[2].bias)

    def forward(self, previous, sensors, moving):
        return F.normalize(previous + moving * self.correction(sensors), dim=-1)


class RollPitch(nn.Module):
    def forward(self, down):
        x, y, z = down.unbind(dim=-1)
        roll = torch.atan2(y, z)
        pitch = torch.asin(-x.clamp(-1.0, 1.0))
        return torch.stack([roll, pitch], dim=-1)


torch.manual_seed(0)
count = 48
roll, pitch = 0.8 * torch.randn(count), 0.5 * torch.randn(count)
pitch[29], roll[29] = torch.pi / 2, 0.0  # nose straight up
previous = torch.stack([-pitch.sin(), roll.sin() * pitch.cos(), roll.cos() * pitch.cos()], dim=-1)
target = torch.stack([roll, pitch], dim=-1) + 0.02 * torch.randn(count, 2)
moving = (torch.rand(count, 1) > 0.3).float()
moving[29] = 0.0
data = TensorDataset(previous, torch.randn(count, 6), moving, target)

model, angles = Attitude(), RollPitch()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for step, (previous, sensors, moving, target) in enumerate(DataLoader(data, batch_size=8)):
    loss = F.smooth_l1_loss(angles(model(previous, sensors, moving)), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.5f}")
