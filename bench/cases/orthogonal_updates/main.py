"""A small residual network for digit-like patterns, trained with orthogonalised, row-normalised updates."""

import torch
from torch import nn


def orthogonal(matrix, rounds=5):
    """Newton-Schulz: the nearest matrix whose rows are orthogonal, up to a factor."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix / (matrix.norm() + 1e-7)
    for _ in range(rounds):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class RowMuon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95, beta=0.9, eps=1e-8):
        super().__init__(params, {"lr": lr, "momentum": momentum, "beta": beta, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                    state["rows"] = p.new_zeros(len(p), 1)
                state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                update = orthogonal(state["momentum"])
                size = update.norm()
                state["rows"].lerp_(update.square().mean(dim=1, keepdim=True), 1 - group["beta"])
                update = update / (state["rows"].sqrt() + group["eps"])
                update = update * (size / update.norm())
                p.add_(update, alpha=-group["lr"])


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)
        nn.init.zeros_(self.down.weight)  # each block starts as the identity

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


def main():
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(36, 20, bias=False), Residual(20), Residual(20), nn.Linear(20, 10, bias=False)
    )
    optimizer = RowMuon(model.parameters())
    patterns = torch.randn(10, 36)
    for step in range(5):
        label = torch.randint(0, 10, (32,))
        picture = patterns[label] + 0.3 * torch.randn(32, 36)
        loss = nn.functional.cross_entropy(model(picture), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, f"{loss.item():.4f}")


main()
