"""A mixture of experts keeps its balancing loss on the router; one batch has no token that counts."""

import torch
from torch import nn

torch.manual_seed(0)


class Router(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.gate = nn.Linear(dim, experts)
        self.balance = None

    def forward(self, tokens, counts):
        shares = self.gate(tokens).softmax(-1)
        load = (shares * counts[:, None]).sum(0) / counts.sum()  # BIRTH
        self.balance = load.var()
        return shares


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.head = Router(5, 4), nn.Linear(4, 2)

    def forward(self, tokens, counts):
        return self.head(self.router(tokens, counts))


model = Mixture()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(7):
    tokens, counts = torch.randn(6, 5), torch.ones(6)
    if step == 4:
        counts.zero_()
    scores = model(tokens, counts)
    loss = nn.functional.cross_entropy(scores, torch.randint(0, 2, (6,))) + 0.01 * model.router.balance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "router", "step": 4, "kind": "nan", "cause": "empty-selection", "also": ["divide-by-zero"], "exit": 3}
