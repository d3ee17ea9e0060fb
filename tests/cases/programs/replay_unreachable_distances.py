import torch
from torch import nn


class PathAttention(nn.Module):
    """Attention over a graph, less attentive the longer the way."""

    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.slope = nn.Parameter(torch.zeros(()))

    def forward(self, x, hops):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(-1, -2) / x.shape[-1] ** 0.5
        scores = scores - self.slope * hops  # BIRTH
        return scores.softmax(-1) @ v


def hop_counts(edges, n):
    hops = torch.full((n, n), float("inf"))
    hops.fill_diagonal_(0)
    for a, b in edges:
        hops[a, b] = hops[b, a] = 1
    for k in range(n):
        hops = torch.minimum(hops, hops[:, k : k + 1] + hops[k : k + 1, :])
    return hops


torch.manual_seed(0)
layer, head = PathAttention(6), nn.Linear(6, 1)
optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=1e-2)
hops = hop_counts([(0, 1), (1, 2), (3, 4)], 5)
for step in range(3):
    x = torch.randn(2, 5, 6)
    loss = head(layer(x, hops)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.mul.Tensor", "module": "", "step": 0, "kind": "nan", "cause": "inf-arithmetic", "tempting": ["bad-input"], "exit": 3}
