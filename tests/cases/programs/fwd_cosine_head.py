import torch
from torch import nn


class CosineHead(nn.Module):
    """Class centres; their lengths are computed once, since they hardly change."""

    def __init__(self, dim, classes):
        super().__init__()
        self.centres = nn.Parameter(torch.zeros(classes, dim))
        self.register_buffer("lengths", self.centres.detach().norm(dim=1), persistent=False)

    def forward(self, x):
        x = nn.functional.normalize(x, dim=1)
        return 8 * (x @ self.centres.T) / self.lengths  # BIRTH


class FewShot(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, 4)
        self.head = CosineHead(4, 3)

    def forward(self, x):
        return self.head(self.body(x).tanh())


torch.manual_seed(0)
model = FewShot()
shots = torch.randn(3, 6, 5)
with torch.no_grad():
    model.head.centres.copy_(model.body(shots).tanh().mean(dim=1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    label = torch.randint(0, 3, (4,))
    loss = nn.functional.cross_entropy(model(shots[label, step]), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "head", "step": 0, "kind": "inf", "cause": "stale-copy", "tempting": ["divide-by-zero"], "exit": 3}
