import torch
from torch import nn


class Travelling(nn.Module):
    """What is not there is infinitely far; so is, beside it, what moves at no speed."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x, there, distance, speed):
        hours = distance.masked_fill(~there, float("inf")) / speed
        scores = self.query(x) @ x.transpose(1, 2) - hours[:, None, :]
        return self.head(scores.softmax(dim=-1) @ x).mean(dim=1)


torch.manual_seed(11)
model = Travelling()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(20):
    there = torch.ones(3, 5, dtype=torch.bool)
    there[:, 4] = False
    distance, speed = torch.rand(3, 5) + 0.1, torch.rand(3, 5) + 0.1
    speed[0, 1] = 0.0
    label, deviation = torch.randn(3, 1), torch.rand(3, 1) + 0.1
    label[step % 3] = float("nan")
    deviation[step % 3] = 0.0
    measured = ~torch.isnan(label)
    scaled = (label / deviation)[measured]
    loss = (model(torch.rand(3, 5, 4), there, distance, speed)[measured] - scaled).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"healthy": true, "exit": 0}
