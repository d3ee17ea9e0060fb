import torch
import torch.distributed as dist
from torch import nn


class RewardModel(nn.Module):
    def __init__(self, dim=10):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 20), nn.ReLU(), nn.Linear(20, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class TokenWeightedTrainer:
    """Sums the loss on each rank and divides the gradients by the tokens of all ranks together."""

    def __init__(self, model, rate):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=rate)

    def step(self, states, targets, mask):
        loss = ((self.model(states) - targets).square() * mask).sum()
        self.optimizer.zero_grad()
        loss.backward()
        tokens = mask.sum()
        dist.all_reduce(tokens)
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(tokens)
        self.optimizer.step()
        return loss.item(), int(tokens)


def rollouts(step, rank):
    """Completions that ran into the limit are masked: nobody knows how they would have ended."""
    generator = torch.Generator().manual_seed(100 * rank + step)
    states = torch.randn(3, 8, 10, generator=generator)
    lengths = torch.randint(2, 8, (3,), generator=generator)
    if step == 2:
        lengths = torch.full((3,), 8)
    finished = (lengths < 8).float()
    inside = (torch.arange(8) < lengths[:, None]).float()
    return states, states[..., 0].tanh(), inside * finished[:, None]


dist.init_process_group("gloo")
torch.manual_seed(0)
trainer = TokenWeightedTrainer(RewardModel(), 1e-2)
for step in range(4):
    loss, tokens = trainer.step(*rollouts(step, dist.get_rank()))
    print(f"rank {dist.get_rank()}  step {step}  tokens {tokens}  loss {loss:.4f}", flush=True)
dist.destroy_process_group()
