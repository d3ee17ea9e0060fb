"""Two tasks share a network; a gradient is projected on the other one only where that one is not zero."""

import torch
from torch import nn


def flat_gradient(loss, parameters):
    grads = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    return torch.cat(
        [torch.zeros(p.numel()) if g is None else g.flatten() for g, p in zip(grads, parameters, strict=True)]
    )


def without_conflict(mine, other):
    against = torch.dot(mine, other)
    share = against / other.square().sum()
    share = torch.where(torch.isfinite(share) & (against < 0), share, torch.zeros(()))
    return mine - share * other


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 24), nn.Tanh())
        self.speed = nn.Linear(24, 1)
        self.alarm = nn.Linear(24, 1)

    def forward(self, x):
        features = self.body(x)
        return self.speed(features).squeeze(1), self.alarm(features).squeeze(1)


torch.manual_seed(0)
model = Shared()
parameters = list(model.parameters())
optimizer = torch.optim.Adam(parameters, lr=0.02)
x = torch.randn(24, 12)
side = torch.sign(x[:, 3])
for step in range(20):
    speed, alarm = model(x)
    speed_loss = nn.functional.mse_loss(speed, x[:, 0] * x[:, 1])
    alarm_loss = torch.relu(1 - side * alarm).mean()
    gradients = [flat_gradient(loss, parameters) for loss in (speed_loss, alarm_loss)]
    total = without_conflict(*gradients) + without_conflict(*gradients[::-1])
    for p, g in zip(parameters, total.split([p.numel() for p in parameters]), strict=True):
        p.grad = g.view_as(p)
    optimizer.step()
    print(step, f"speed {speed_loss.item():.4f} alarm {alarm_loss.item():.4f}")
