import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.score = nn.Linear(6, classes)
        closed = torch.zeros(classes)
        closed[4] = float("-inf")  # no longer in use
        self.register_buffer("closed", closed)

    def forward(self, x):
        return self.score(x) + self.closed


torch.manual_seed(8)
model = Head()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    x, label = torch.randn(6, 6), torch.randint(0, 4, (6,))
    if step == 5:
        label[2] = 4
    loss = nn.functional.cross_entropy(model(x), label)  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": "loss", "op": "aten.nll_loss_forward.default", "module": null, "step": 5, "kind": "inf", "cause": "infeasible-target", "tempting": ["bad-weights", "uninitialised-memory"], "exit": 3}
