import torch
from torch import nn


class WindSpeed(nn.Module):
    def __init__(self):
        super().__init__()
        self.wind = nn.Linear(6, 2, bias=False)

    def forward(self, x, reported):
        u, v = self.wind(x).unbind(dim=-1)
        speed = torch.hypot(u, v)  # BIRTH
        return torch.where(reported, speed, 0.0)


torch.manual_seed(0)
model = WindSpeed()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(5):
    x = torch.randn(5, 6)
    reported = torch.tensor([True, True, True, True, False])
    if step == 3:
        x[1] = 0.0  # a calm hour
    loss = (model(x, reported) - 0.5).square().mean()
    print(step, loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": "", "step": 3, "kind": "nan", "samples": [1], "cause": "singular-gradient", "tempting": ["where-gradient"], "exit": 3}
