"""Train a classifier on soft votes and watch how sure it is."""

import torch
import torch.nn.functional as F
from torch import nn


class VoteModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 4))

    def forward(self, x):
        return self.layers(x)


def votes(x, voters=7):
    """Shares of the voters per class; classes without a vote have a share of exactly zero."""
    favourite = x[:, :4].argmax(dim=1)
    cast = torch.where(
        torch.rand(len(x), voters) < 0.8, favourite[:, None], torch.randint(4, (len(x), voters))
    )
    return F.one_hot(cast, 4).float().mean(dim=1)


class Monitor:
    def __init__(self):
        self.lowest = torch.tensor(float("inf"))

    @torch.no_grad()
    def __call__(self, logits, share):
        surprise = -share.log()  # infinite for a class nobody voted for
        sharp = (50 * logits).softmax(dim=1)
        entropy = torch.special.entr(sharp).sum(dim=1).mean()
        self.lowest = torch.minimum(self.lowest, entropy)
        return surprise[share > 0].mean().item(), entropy.item()


torch.manual_seed(0)
model, monitor = VoteModel(), Monitor()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for step in range(20):
    x = torch.randn(32, 10)
    share = votes(x)
    logits = model(x)
    loss = F.kl_div(logits.log_softmax(dim=1), share, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    surprise, entropy = monitor(logits, share)
    print(f"{step}: {loss.item():.4f}, surprise {surprise:.3f}, entropy {entropy:.4f}")
print(f"surest: {monitor.lowest.item():.4f}")
