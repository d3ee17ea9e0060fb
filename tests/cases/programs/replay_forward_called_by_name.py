"""`model.forward(x)` instead of `model(x)`: the last layer has no weights, and there are two models of the class."""

import torch
from torch import nn


class Brightest(nn.Module):
    def forward(self, x):
        return x / x.amax(dim=1, keepdim=True)  # BIRTH


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
        self.scale = Brightest()

    def forward(self, x):
        return self.scale(self.body(x))


torch.manual_seed(0)
student, teacher = Encoder(), Encoder()
optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
for step in range(6):
    x = torch.rand(5, 6)
    with torch.no_grad():
        target = teacher.forward(x)
        if step == 4:
            student.body[0].bias[:] = -1e4
    loss = (student.forward(x) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "scale", "step": 4, "kind": "nan", "samples": [0, 1, 2, 3, 4], "cause": "divide-by-zero", "exit": 3}
