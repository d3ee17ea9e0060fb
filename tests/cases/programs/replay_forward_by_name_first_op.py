"""`model.forward(x)`: the op is in the model, before any of its layers was called and of the batch alone."""

import torch
from torch import nn


class Spectrum(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, power):
        level = power.log()  # BIRTH
        return self.layers.forward(level)


torch.manual_seed(0)
net, average = Spectrum(), Spectrum()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(6):
    power = torch.rand(5, 6)
    if step == 3:
        power[2, 1] = 0
    loss = nn.functional.cross_entropy(net.forward(power), torch.randint(0, 2, (5,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.log.default", "module": "", "step": 3, "kind": "inf", "samples": [2], "cause": "log-of-zero", "exit": 3}
