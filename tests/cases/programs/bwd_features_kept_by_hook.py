"""A style loss on features that a forward hook has put into a dict: the root of an energy that is zero."""

import torch
from torch import nn

torch.manual_seed(0)
features = {}


class Energy(nn.Module):
    def forward(self, maps):
        return maps.pow(2).mean((2, 3)).sqrt()  # BIRTH


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.energy = Energy()
        self.last = nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, pictures):
        maps = torch.tanh(self.first(pictures))
        self.energy(maps)
        return self.last(maps)


def keep(module, given, made):
    features["energy"] = made


model = Net()
model.energy.register_forward_hook(keep)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(9):
    pictures = torch.rand(3, 1, 6, 6)
    if step == 6:
        with torch.no_grad():
            model.first.weight.zero_()
            model.first.bias.zero_()
    drawn = model(pictures)
    loss = (drawn - pictures).pow(2).mean() + 0.1 * features["energy"].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": "backward", "op": ["aten.div.Tensor", "aten.mul.Tensor"], "module": "energy", "step": 6, "kind": ["inf", "nan"], "cause": "singular-gradient", "exit": 3}
