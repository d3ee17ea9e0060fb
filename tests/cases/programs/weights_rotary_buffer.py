import torch
from torch import nn


class Rotary(nn.Module):
    def __init__(self, dim):
        super().__init__()
        period = torch.arange(0, dim).float() / dim
        self.register_buffer("inv_freq", 1.0 / period)  # BIRTH

    def forward(self, x):
        angle = torch.arange(x.size(1))[:, None] * self.inv_freq
        return x * angle.cos()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rotary = Rotary(4)
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        return self.out(self.rotary(x))


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    loss = model(torch.randn(2, 3, 4)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())

# truth:
# {"phase": "weights", "op": "aten.reciprocal.default", "module": [null, "", "rotary"], "step": [-1, 0], "kind": "inf", "cause": "divide-by-zero", "also": ["bad-weights"], "exit": 3}
