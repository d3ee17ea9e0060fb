"""Match two clouds by optimal transport, with Sinkhorn's iterations in log space and forbidden pairs."""

import torch
from torch import nn


def log_sinkhorn(cost, forbidden, eps=0.02, rounds=40):
    """Plan with uniform marginals; cost / eps would underflow outside of log space."""
    kernel = (-cost / eps).masked_fill(forbidden, float("-inf"))
    rows, columns = cost.shape
    f, g = torch.zeros(rows), torch.zeros(columns)
    for _ in range(rounds):
        f = -torch.logsumexp(kernel + g[None, :], dim=1) - torch.tensor(rows).log()
        g = -torch.logsumexp(kernel + f[:, None], dim=0) - torch.tensor(columns).log()
    return (kernel + f[:, None] + g[None, :]).exp()


class Flow(nn.Module):
    """Moves the points of one cloud."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, points):
        return points + self.net(points)


torch.manual_seed(0)
source = torch.randn(24, 2)
target = torch.randn(24, 2) * 0.5 + torch.tensor([2.0, 1.0])
group = torch.arange(24) % 2
forbidden = group[:, None] != group[None, :]

flow = Flow()
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
for step in range(20):
    cost = torch.cdist(flow(source), target).square()
    with torch.no_grad():
        plan = log_sinkhorn(cost, forbidden)
    loss = (plan * cost).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step}: {loss.item():.4f}, mass {plan.sum().item():.3f}")
