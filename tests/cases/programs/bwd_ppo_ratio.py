import torch
from torch import nn
from torch.distributions import Normal


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
        self.log_std = nn.Parameter(torch.full((1,), -1.0))

    def forward(self, observation):
        return Normal(self.mean(observation), self.log_std.exp())


def surrogate(policy, actions, old_log_prob, advantage, clip=0.2):
    ratio = torch.exp(policy.log_prob(actions).sum(-1) - old_log_prob)  # BIRTH
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return -torch.min(ratio * advantage, clipped * advantage).mean()


torch.manual_seed(1)
actor = Actor()
optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
for update in range(5):
    observation = torch.randn(6, 3)
    with torch.no_grad():
        behaviour = actor(observation)
        actions = behaviour.sample()
        old_log_prob = behaviour.log_prob(actions).sum(-1)
        if update == 3:
            old_log_prob[4] -= 120.0  # an episode of another worker, scored with a narrow old policy
    advantage = torch.rand(6) + 0.1
    loss = surrogate(actor(observation), actions, old_log_prob, advantage)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(update, f"{loss.item():.4f}")

# truth:
# {"phase": ["loss", "backward"], "op": ["aten.exp.default", "aten.mul.Tensor"], "module": null, "step": 3, "kind": ["inf", "nan"], "samples": [4], "cause": "where-gradient", "also": ["overflow"], "tempting": ["singular-gradient"], "exit": 3}
