"""Cluster two crops of each photo to the same prototypes (swapped assignments)."""

import torch
import torch.nn.functional as F
from torch import nn


class CropEncoder(nn.Module):
    def __init__(self, prototypes=12, width=16):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(48, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, width))
        self.prototypes = nn.Linear(width, prototypes, bias=False)

    def forward(self, crop):
        return self.prototypes(self.trunk(crop))


@torch.no_grad()
def balanced_assignment(scores, eps=0.05, rounds=3):
    """Soft assignment of crops to prototypes in which all prototypes are used alike (Sinkhorn-Knopp)."""
    plan = torch.exp(scores / eps).t()
    plan /= plan.sum()
    for _ in range(rounds):
        plan /= plan.sum(dim=1, keepdim=True) * plan.shape[0]
        plan /= plan.sum(dim=0, keepdim=True) * plan.shape[1]
    return (plan * plan.shape[1]).t()


def swapped_loss(left, right, temperature=0.1):
    return -sum(
        (balanced_assignment(a) * F.log_softmax(b / temperature, dim=1)).sum(dim=1).mean()
        for a, b in ((left, right), (right, left))
    )


torch.manual_seed(0)
kinds = torch.randn(6, 48)
model = CropEncoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
for step in range(30):
    photo = kinds[torch.randint(6, (32,))]
    left, right = (photo + 0.4 * torch.randn(32, 48) for _ in range(2))
    loss = swapped_loss(model(left), model(right))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step}: {loss.item():.4f}")
