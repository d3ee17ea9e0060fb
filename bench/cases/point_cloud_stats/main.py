"""Labels the points of laser scans, normalised together by a batch norm of our own."""

import torch
from torch import nn


class PointNorm(nn.Module):
    """Over all occupied cells; the mean and variance for evaluation are kept on the way."""

    def __init__(self, channels, momentum=0.1, eps=1e-4):
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))

    def forward(self, points):
        if self.training:
            mean, var = points.mean(dim=0), points.var(dim=0, unbiased=False)
            with torch.no_grad():
                self.mean.lerp_(mean, self.momentum)
                self.var.lerp_(points.var(dim=0), self.momentum)
        else:
            mean, var = self.mean, self.var
        return (points - mean) / torch.sqrt(var + self.eps) * self.weight + self.bias


def scan(occupied):
    points = torch.rand(occupied, 4)
    return points, (points[:, 2] > 0.5).long()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), PointNorm(16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step, occupied in enumerate([40, 32, 55, 1, 48, 37]):  # in the fourth scan the lens was covered
    points, label = scan(occupied)
    loss = nn.functional.cross_entropy(model(points), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}  points {occupied}  loss {loss.item():.4f}")

model.eval()
with torch.no_grad():
    points, label = scan(60)
    probability = model(points).softmax(dim=1)
    print(f"certainty on a new scan: {probability.amax(dim=1).mean().item():.4f}")
