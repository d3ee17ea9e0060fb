import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(4, 1)

    def forward(self, x, valid):
        s = self.score(x).squeeze(-1)
        s = s + torch.where(valid, 0.0, float("-inf"))
        total = torch.logsumexp(s, dim=1)  # BIRTH
        return torch.where(valid.any(1), total, torch.zeros_like(total))


torch.manual_seed(0)
reader = Reader()
optimizer = torch.optim.Adam(reader.parameters())
for step in range(4):
    x = torch.randn(3, 5, 4)
    valid = torch.ones(3, 5, dtype=torch.bool)
    valid[:, 3:] = False
    if step == 1:
        valid[2] = False
    loss = reader(x, valid).pow(2).mean()
    print(step, loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": "backward", "op": "aten.sub.Tensor", "module": "", "step": 1, "kind": "nan", "samples": [2], "cause": "fully-masked-row", "also": ["where-gradient"], "exit": 3}
