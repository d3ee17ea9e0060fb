import torch
from torch import nn


class Inverse(nn.Module):
    def forward(self, counts):
        return 1 / counts  # BIRTH


class Weighing(nn.Module):
    def __init__(self):
        super().__init__()
        self.inverse, self.gate, self.head = Inverse(), nn.Linear(3, 3), nn.Linear(3, 1)
        with torch.no_grad():
            self.gate.weight.abs_()

    def forward(self, x, counts):
        rarity = self.inverse(counts)
        kept = torch.where(counts > 0, rarity, torch.zeros_like(rarity))
        return self.head(torch.sigmoid(self.gate(rarity)) * x + kept)  # and here it is not guarded


torch.manual_seed(0)
model = Weighing()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    x, counts = torch.randn(8, 3), torch.randint(1, 5, (8, 3)).float()
    if step == 4:
        counts[6, 1] = 0
    loss = nn.functional.mse_loss(model(x, counts), torch.zeros(8, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.reciprocal.default", "module": "inverse", "step": 4, "kind": "inf", "cause": "divide-by-zero", "exit": 3}
