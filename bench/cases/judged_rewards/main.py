import torch
from torch import nn


def nanstd(x, dim):
    """Standard deviation over what is there, at least one value."""
    known = ~torch.isnan(x)
    centred = torch.where(known, x - x.nanmean(dim=dim, keepdim=True), torch.zeros(()))
    count = known.sum(dim=dim, keepdim=True).clamp(min=1)
    return (centred.square().sum(dim=dim, keepdim=True) / count).sqrt()


def combine(per_judge, weights):
    """Total reward; a judge that does not apply to a sample has no say in it."""
    total = (per_judge * weights).nansum(dim=1)
    return total / (torch.isfinite(per_judge) * weights).sum(dim=1).clamp(min=1e-6)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 3))

    def forward(self, x):
        return self.net(x).log_softmax(dim=-1)


torch.manual_seed(3)
policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
weights = torch.tensor([1.0, 0.5, 2.0])
for step in range(6):
    states = torch.randn(2, 4).repeat_interleave(4, dim=0)
    actions = torch.multinomial(policy(states).detach().exp(), 1)
    per_judge = torch.rand(8, 3) + 0.5 * (actions == 1).float()
    per_judge[torch.rand(8, 3) < 0.3] = float("nan")
    rewards = combine(per_judge, weights).view(2, 4)
    advantages = (rewards - rewards.nanmean(dim=1, keepdim=True)) / (nanstd(rewards, 1) + 1e-4)
    loss = -(advantages.flatten() * policy(states).gather(1, actions).squeeze(1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}  reward {rewards.mean().item():.3f}  judges {per_judge.mean(dim=0).tolist()}")
