import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.blur = nn.Parameter(torch.ones(heads))

    def forward(self, x):
        rows, length, dim = x.shape
        q, k, v = (t.view(rows, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-1, -2)).masked_fill(later, float("-inf"))
        scores = scores / self.blur[:, None, None]  # BIRTH
        return (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(rows, length, dim)


torch.manual_seed(10)
model = nn.Sequential(nn.Linear(4, 8), Attention(8, 2), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _step in range(3):
    loss = model(torch.randn(3, 5, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": "backward", "op": "aten.mul.Tensor", "module": "1", "step": 0, "kind": "nan", "cause": "inf-arithmetic", "also": ["where-gradient"], "tempting": ["fully-masked-row"], "exit": 3}
