"""Click prediction with two large tables; the optimizer keeps only row and column means of the squares."""

import torch
from torch import nn


class FactoredMoments(torch.optim.Optimizer):
    def __init__(self, params, lr=0.05, decay=0.8):
        super().__init__(params, {"lr": lr, "decay": decay})

    @staticmethod
    def approximate_root(rows, columns):
        row_factor = (rows / rows.mean()).rsqrt().unsqueeze(1)
        return row_factor * columns.rsqrt().unsqueeze(0)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                squares = p.grad.square()
                if p.dim() < 2:
                    p.sub_(p.grad, alpha=group["lr"])
                    continue
                if not state:
                    state["rows"], state["columns"] = torch.zeros(p.shape[0]), torch.zeros(p.shape[1])
                state["rows"].lerp_(squares.mean(dim=1), 1 - group["decay"])
                state["columns"].lerp_(squares.mean(dim=0), 1 - group["decay"])
                p.sub_(p.grad * self.approximate_root(state["rows"], state["columns"]), alpha=group["lr"])


class ClickModel(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.user = nn.Linear(20, dim)
        self.campaign = nn.Linear(6, dim)

    def forward(self, user, campaign):
        match = self.user(user)
        if campaign is not None:
            match = match * torch.sigmoid(self.campaign(campaign))
        return match.sum(dim=1)


def day(number, count=64):
    user, campaign = torch.randn(count, 20), torch.randn(count, 6)
    clicked = (user[:, 0] + 0.5 * campaign[:, 0] > 0).float()
    organic = number == 0  # no campaign was running yet
    return user, campaign * 0 if organic else campaign, clicked


torch.manual_seed(0)
model = ClickModel()
optimizer = FactoredMoments(model.parameters())
for number in range(5):
    user, campaign, clicked = day(number)
    loss = nn.functional.binary_cross_entropy_with_logits(model(user, campaign), clicked)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"day {number}: {loss.item():.4f}")
