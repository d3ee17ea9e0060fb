import torch
from torch import nn


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, a, b):
        difference = self.tower(a) - self.tower(b)
        return (difference**2).sum(dim=1).sqrt()  # BIRTH


torch.manual_seed(0)
model = Siamese()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    a, b = torch.randn(4, 6), torch.randn(4, 6)
    if step == 5:
        b[3] = a[3]  # the same picture twice
    loss = (model(a, b) - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": "", "step": 5, "kind": "inf", "samples": [3], "cause": "singular-gradient", "exit": 3}
