"""A ratio whose divisor a ReLU has made zero: tanh makes 1 of the infinity, and its slope there is 0."""

import torch
from torch import nn
from torch.nn import functional as F


class Ratio(nn.Module):
    def forward(self, a, b):
        return torch.tanh(a / b)  # BIRTH


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.above, self.below = nn.Linear(4, 4), nn.Linear(4, 4)
        self.ratio = Ratio()
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        return self.out(self.ratio(self.above(x), F.relu(self.below(x))))


torch.manual_seed(0)
net = Net()
with torch.no_grad():
    net.below.bias.fill_(40.0)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(5):
    x = torch.randn(6, 4)
    if step == 3:
        x[1] *= 500
    loss = F.smooth_l1_loss(net(x), torch.zeros(6, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {
#   "phase": "backward",
#   "op": "aten.div.Tensor",
#   "module": "ratio",
#   "step": 3,
#   "kind": "nan",
#   "samples": [1],
#   "cause": "divide-by-zero",
#   "also": ["singular-gradient"],
#   "tempting": ["where-gradient"],
#   "exit": 3
# }
