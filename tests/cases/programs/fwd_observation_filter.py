import torch
from torch import nn


class ObservationFilter(nn.Module):
    """Mean and variance over all that was seen so far."""

    def __init__(self, dim):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("total", torch.zeros(dim))
        self.register_buffer("squares", torch.zeros(dim))

    def forward(self, obs):
        if self.training:
            self.count += len(obs)
            self.total += obs.sum(0)
            self.squares += obs.square().sum(0)
        mean = self.total / self.count
        deviation = torch.sqrt(self.squares / self.count - mean**2)  # BIRTH
        return (obs - mean) / (deviation + 1e-4)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter = ObservationFilter(3)
        self.value = nn.Linear(3, 1)

    def forward(self, obs):
        return self.value(self.filter(obs))


torch.manual_seed(0)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
for step in range(12):
    obs = torch.randn(5, 3)
    obs[:, 2] = 1013.25 + 0.01 * torch.randn(5)  # air pressure
    loss = (agent(obs).squeeze(1) - obs[:, 0]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.sqrt.default", "module": "filter", "step": 10, "kind": "nan", "cause": "running-stats", "also": ["invalid-domain"], "exit": 3}
