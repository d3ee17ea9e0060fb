import torch
from torch import nn


def stable_softmax(x):
    shifted = x - x.max(dim=-1, keepdim=True).values  # BIRTH
    e = shifted.exp()
    return e / e.sum(dim=-1, keepdim=True)


class Pointer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(6, 6)

    def forward(self, items, visited):
        q = self.query(items.mean(dim=1, keepdim=True))
        scores = (q * items).sum(-1)
        scores[visited] = float("-inf")
        return stable_softmax(scores)


torch.manual_seed(0)
pointer = Pointer()
optimizer = torch.optim.Adam(pointer.parameters(), lr=1e-3)
for step in range(4):
    items = torch.randn(2, 5, 6)
    visited = torch.zeros(2, 5, dtype=torch.bool)
    visited[0, :3] = True
    if step == 3:
        visited[1] = True  # this tour is finished
    p = pointer(items, visited)
    loss = -(p[:, -1] + 1e-3).log().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.sub.Tensor", "module": "", "step": 3, "kind": "nan", "samples": [1], "cause": "fully-masked-row", "also": ["inf-arithmetic"], "exit": 3}
