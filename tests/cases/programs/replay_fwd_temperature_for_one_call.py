import contextlib

import torch
from torch import nn


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.score, self.temperature = nn.Linear(4, 3), 1.0

    def forward(self, x):
        return torch.softmax(self.score(x) / self.temperature, -1)  # BIRTH


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = Router()
        self.experts = nn.ModuleList(nn.Linear(4, 2) for _ in range(3))

    def forward(self, x):
        share = self.router(x)
        return sum(share[:, i : i + 1] * expert(x) for i, expert in enumerate(self.experts))


@contextlib.contextmanager
def sharper(router, temperature):
    was, router.temperature = router.temperature, temperature
    yield
    router.temperature = was


torch.manual_seed(0)
model = Mixture()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(7):
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
    with sharper(model.router, 1.0 - step / 5):
        out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "router", "step": 5, "kind": "inf", "cause": "bad-hyperparameter", "also": ["divide-by-zero"], "tempting": ["transient-fault"], "exit": 3}
