"""Learns exposure times from image statistics; a hand-made optimizer skips parameters that got no gradient."""

import torch
from torch import nn


class UnitSteps(torch.optim.Optimizer):
    """Every parameter moves by the same length; the rate falls as 1 / sqrt(step)."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "count": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["count"] += 1
            for p in group["params"]:
                if p.grad is None:
                    continue
                length = p.grad.norm()
                direction = torch.nan_to_num(p.grad / length, nan=0.0, posinf=0.0, neginf=0.0)
                p.sub_(direction, alpha=group["lr"] / group["count"] ** 0.5)


class Exposure(nn.Module):
    def __init__(self):
        super().__init__()
        self.day = nn.Linear(6, 1)
        self.night = nn.Linear(6, 1)

    def forward(self, statistics, dark):
        return torch.where(dark[:, None], self.night(statistics), self.day(statistics))


torch.manual_seed(0)
model = Exposure()
optimizer = UnitSteps(model.parameters(), lr=0.1)
for hour in range(12):
    statistics = torch.rand(16, 6)
    dark = torch.full((16,), hour < 5 or hour > 9)
    wanted = statistics.mean(dim=1, keepdim=True) + dark[:, None] * 2.0
    loss = nn.functional.l1_loss(model(statistics, dark), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"hour {hour:2d} loss {loss.item():.4f}")
