import torch
from torch import nn


class Risk(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def ranking_loss(risk, time):
    """Who lives longer should have the lower risk; still alive is an infinite time."""
    gap = time[:, None] - time[None, :]  # BIRTH
    margin = torch.tanh(gap)
    return torch.relu(margin - (risk[None, :] - risk[:, None])).mean()


torch.manual_seed(0)
model = Risk()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(5):
    x, time = torch.randn(6, 5), torch.rand(6) * 10
    time[0] = 9.5
    if step == 3:
        time[2] = time[4] = float("inf")
    loss = ranking_loss(model(x), time)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.sub.Tensor", "module": null, "step": 3, "kind": "nan", "samples": [2, 4], "cause": "inf-arithmetic", "tempting": ["bad-input"], "exit": 3}
