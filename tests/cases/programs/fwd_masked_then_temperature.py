import torch
from torch import nn


class Pointer(nn.Module):
    """Scores over the items of a list; how sharp they are comes with each sample."""

    def __init__(self, dim):
        super().__init__()
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)

    def forward(self, items, there, temperature):
        scores = self.query(items) @ self.key(items).transpose(1, 2)
        scores = scores.masked_fill(~there[:, None, :], float("-inf"))
        scores = scores / temperature[:, None, None]  # BIRTH
        return scores.softmax(dim=-1) @ items


class Ranker(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.embed = nn.Linear(4, dim)
        self.pointer = Pointer(dim)
        self.head = nn.Linear(dim, 1)

    def forward(self, items, there, temperature):
        return self.head(self.pointer(self.embed(items), there, temperature)).mean(dim=1)


torch.manual_seed(3)
model = Ranker()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(7):
    there = torch.ones(4, 6, dtype=torch.bool)
    there[:, 4:] = False
    temperature = torch.rand(4) + 0.5
    if step == 5:
        temperature[2] = 0.0  # greedy, as the sampler writes it
    out = model(torch.randn(4, 6, 4), there, temperature)
    loss = nn.functional.mse_loss(out, torch.randn(4, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "pointer", "step": 5, "kind": "inf", "samples": [2], "cause": "divide-by-zero", "tempting": ["fully-masked-row", "inf-arithmetic"], "exit": 3}
