import torch
from torch import nn


class Rates(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.log_rate = nn.Linear(8, 2)

    def forward(self, x):
        rate = torch.exp(self.log_rate(self.body(x).relu()))  # BIRTH
        return rate


torch.manual_seed(0)
model = Rates().to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(5):
    x = torch.rand(3, 4)
    if step == 3:
        x[0] *= 4000  # milliseconds, not seconds
    counts = torch.poisson(torch.full((3, 2), 2.0))
    rate = model(x.bfloat16()).float()
    loss = (rate - counts * torch.log(rate + 1e-6)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 3))

# truth:
# {"phase": "forward", "op": "aten.exp.default", "module": "", "step": 3, "kind": "inf", "samples": [0], "cause": "overflow", "also": ["bad-input"], "tempting": ["half-overflow"], "exit": 3}
