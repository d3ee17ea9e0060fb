import torch
from torch import nn
from torch.distributions import Uniform


class Window(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 2)

    def forward(self, trip):
        centre, width = self.net(trip).unbind(-1)
        width = nn.functional.softplus(width) + 4.0
        return centre - width, centre + width


torch.manual_seed(0)
model = Window()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for day in range(5):
    trip = torch.randn(6, 3)
    arrival = torch.randn(6)
    if day == 3:
        arrival[5] = 41.0  # the road was closed
    low, high = model(trip)
    likelihood = Uniform(low, high, validate_args=False).log_prob(arrival)  # BIRTH
    loss = -likelihood.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(day, loss.item())

# truth:
# {"phase": "loss", "op": "aten.log.default", "module": null, "step": 3, "kind": "inf", "samples": [5], "cause": "infeasible-target", "tempting": ["log-of-zero"], "exit": 3}
