import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        e = self.fc(x).pow(2).sum(dim=-1, keepdim=True)
        return torch.sqrt(e)  # BIRTH


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.energy = Energy()
        self.out = nn.Linear(1, 1)

    def forward(self, x):
        return self.out(checkpoint(self.energy, x, use_reentrant=False))


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(5):
    x = torch.randn(3, 4)
    if step == 3:
        x[0] = 0.0
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": "energy", "step": 3, "kind": "inf", "samples": [0], "cause": "singular-gradient", "exit": 3}
