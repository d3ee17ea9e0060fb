import torch
from torch import nn


class Magnitude(nn.Module):
    def __init__(self, power=0.5):
        super().__init__()
        self.power = power

    def forward(self, x):
        return x**self.power  # BIRTH


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters = nn.Linear(8, 6, bias=False)
        self.compress = Magnitude()
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        energy = self.filters(x).square()
        return self.out(self.compress(energy))


torch.manual_seed(0)
speech = Speech()
optimizer = torch.optim.Adam(speech.parameters())
for step in range(5):
    x = torch.rand(2, 8)
    if step == 4:
        x[1] = 0.0  # a silent frame
    loss = nn.functional.cross_entropy(speech(x), torch.tensor([0, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.pow.Tensor_Scalar", "module": "compress", "step": 4, "kind": "inf", "samples": [1], "cause": "singular-gradient", "exit": 3}
