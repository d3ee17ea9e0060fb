import torch
from torch import nn


class Intent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(30, 8)
        self.out = nn.Linear(8, 6)

    def forward(self, ids, enabled):
        return self.out(self.words(ids)).masked_fill(~enabled, float("-inf"))


torch.manual_seed(0)
model = Intent()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(4):
    ids, label = torch.randint(0, 30, (4, 5)), torch.randint(0, 3, (4,))
    enabled = torch.ones(6, dtype=torch.bool)
    if step == 2:
        enabled[5] = False  # a feature is switched off; nobody has this label
    target = nn.functional.one_hot(label, 6).float()
    loss = nn.functional.cross_entropy(model(ids, enabled), target)  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.mul.Tensor", "module": null, "step": 2, "kind": "nan", "cause": "inf-arithmetic", "tempting": ["infeasible-target", "fully-masked-row"], "exit": 3}
