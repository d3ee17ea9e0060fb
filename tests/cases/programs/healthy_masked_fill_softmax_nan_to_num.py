import torch
from torch import nn


class Attend(nn.Module):
    """A fully masked row is NaN after softmax; nan_to_num cleans the value, and the backward of
    masked_fill zeroes the gradient of every masked score, so nothing bad reaches a weight."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(6, 6) for _ in range(3))

    def forward(self, x, keep):
        scores = self.q(x) @ self.k(x).transpose(1, 2)
        scores = scores.masked_fill(~keep[:, None, :], float("-inf"))
        weights = torch.nan_to_num(torch.softmax(scores, dim=-1))
        return weights @ self.v(x)


torch.manual_seed(0)
attend = Attend()
optimizer = torch.optim.Adam(attend.parameters(), lr=1e-3)
for step in range(4):
    keep = torch.ones(2, 4, dtype=torch.bool)
    keep[1] = step < 2
    loss = (attend(torch.randn(2, 4, 6), keep) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.5f}")

# truth:
# {"healthy": true, "exit": 0}
