import torch
from torch import nn


class Balancer(nn.Module):
    """Brings each task's loss to about one by its running mean."""

    def __init__(self, tasks, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("scale", torch.zeros(tasks))

    def forward(self, losses):
        balanced = losses / self.scale.clone()  # BIRTH
        with torch.no_grad():
            self.scale.lerp_(losses, self.momentum)
        return balanced.sum()


torch.manual_seed(0)
net, balance = nn.Linear(4, 2), Balancer(2)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randn(8, 4)
    losses = (net(x) - x[:, :2]).pow(2).mean(0)
    loss = balance(losses)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": "", "step": 0, "kind": "inf", "cause": "divide-by-zero", "tempting": ["running-stats", "empty-selection"], "exit": 3}
