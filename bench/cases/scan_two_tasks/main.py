"""One network for two questions about a scan: where the lesion is, and how it is graded."""

import torch
from torch import nn


class ProjectedGradients:
    """Takes out of each task's gradient what points against the other task's."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def gradient(self, loss):
        grads = torch.autograd.grad(loss, self.parameters, retain_graph=True, allow_unused=True)
        filled = [
            torch.zeros_like(p) if g is None else g for g, p in zip(grads, self.parameters, strict=True)
        ]
        return torch.cat([g.flatten() for g in filled])

    def step(self, losses):
        flat = [self.gradient(loss) for loss in losses]
        total = torch.zeros_like(flat[0])
        for i, mine in enumerate(flat):
            projected = mine.clone()
            for j, other in enumerate(flat):
                if i != j:
                    against = (torch.dot(projected, other) / other.norm() ** 2).clamp(max=0)
                    projected = projected - against * other
            total += projected
        for p, g in zip(self.parameters, total.split([p.numel() for p in self.parameters]), strict=True):
            p.grad = g.view_as(p)
        self.optimizer.step()


class ScanNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(30, 24), nn.ReLU())
        self.place = nn.Linear(24, 2)
        self.grade = nn.Linear(24, 1)

    def forward(self, scan):
        features = self.body(scan)
        return self.place(features), self.grade(features).squeeze(1)


def scans(count=12):
    scan = torch.randn(count, 30)
    return scan, scan[:, :2], torch.sign(scan[:, 2])


torch.manual_seed(0)
net = ScanNet()
tasks = ProjectedGradients(torch.optim.Adam(net.parameters(), lr=0.02))
fixed = scans()
for iteration in range(14):
    scan, position, side = fixed
    place, grade = net(scan)
    place_loss = nn.functional.mse_loss(place, position)
    grade_loss = torch.relu(1 - side * grade).mean()
    tasks.step([place_loss, grade_loss])
    print(f"iteration {iteration}: place {place_loss.item():.4f} grade {grade_loss.item():.4f}")
