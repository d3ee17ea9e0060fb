import torch
from torch import nn


class Reactor(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.head = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, temperature):
        rates = torch.exp(temperature)  # BIRTH
        return self.head(torch.sigmoid(self.mix(rates)))  # a sigmoid of Inf is 0 or 1


torch.manual_seed(0)
model = Reactor()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(6):
    temperature = torch.randn(5, 3)
    if step == 4:
        temperature[3, 1] = 120.0
    loss = (model(temperature) - 0.5).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.exp.default", "module": "", "step": 4, "kind": "inf", "samples": [3], "cause": "overflow", "also": ["bad-input"], "tempting": ["singular-gradient", "inf-arithmetic"], "exit": 3}
