from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Carry:
    hidden: torch.Tensor
    decay: float = 0.9


class Filter(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(3, 3)

    def forward(self, x, carry):
        spread = (x - carry.hidden).pow(2).mean(dim=1, keepdim=True)
        carry.hidden = carry.decay * carry.hidden + x.detach() + 1.0
        carry.decay = carry.decay * 0.5
        return self.mix(x) / spread  # BIRTH


torch.manual_seed(0)
net = Filter()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(6):
    carry = Carry(torch.zeros(2, 3))
    x = torch.randn(2, 3)
    if step == 4:
        x[1] = 0.0
    loss = net(x, carry).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "", "step": 4, "kind": "inf", "cause": "divide-by-zero", "exit": 3}
