"""Soft actor-critic on a pendulum whose torque goes from -2 to 2."""

import torch
import torch.nn.functional as F
from torch import nn

LIMIT = 2.0


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 32), nn.ReLU())
        self.mean = nn.Linear(32, 1)
        self.log_std = nn.Linear(32, 1)

    def forward(self, state):
        hidden = self.body(state)
        std = self.log_std(hidden).clamp(-5, 2).exp()
        normal = torch.distributions.Normal(self.mean(hidden), std)
        raw = normal.rsample()
        action = LIMIT * torch.tanh(raw)
        log_prob = normal.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)
        return action, log_prob.sum(dim=1)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, state, action):
        return self.value(torch.cat([state, action], dim=1)).squeeze(1)


def swing(state, action):
    """One step of the pendulum: cosine, sine, speed."""
    angle = torch.atan2(state[:, 1], state[:, 0])
    speed = (state[:, 2] + 0.75 * angle.sin() + 0.15 * action[:, 0]).clamp(-8, 8)
    reward = -(angle.square() + 0.1 * state[:, 2].square() + 0.001 * action[:, 0].square())
    angle = angle + 0.05 * speed
    return torch.stack([angle.cos(), angle.sin(), speed], dim=1), reward


def reset(count):
    angle = (torch.rand(count) - 0.5) * 2
    return torch.stack([angle.cos(), angle.sin(), torch.zeros(count)], dim=1)


torch.manual_seed(5)
actor, critic = Actor(), Critic()
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
for step in range(12):
    state = reset(16)
    with torch.no_grad():
        action = LIMIT * (2 * torch.rand(16, 1) - 1)
        following, reward = swing(state, action)
        target = reward + 0.98 * critic(following, action)
    critic_loss = F.mse_loss(critic(state, action), target)
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()

    chosen, log_prob = actor(state)
    actor_loss = (0.2 * log_prob - critic(state, chosen)).mean()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()
    print(step, f"critic {critic_loss.item():.3f} actor {actor_loss.item():.3f}")
