import torch
from torch import nn


class LogFeatures(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(6, 8, bias=False)
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        h = torch.relu(self.inp(x))
        h = torch.log(h + self.offset(x))  # BIRTH
        return self.out(h)

    def offset(self, x):
        return (x.abs().sum(dim=1, keepdim=True) > 0).float() * 0.1


torch.manual_seed(1)
model = LogFeatures()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data = torch.randn(8, 4, 6)
data[5, 3] = 0.0  # an empty record in the sixth batch
target = torch.randn(8, 4, 1)
for x, y in zip(data, target):
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.4f}")

# truth:
# {"phase": "forward", "op": "aten.log.default", "module": "", "step": 5, "kind": "inf", "samples": [3], "cause": "log-of-zero", "exit": 3}
