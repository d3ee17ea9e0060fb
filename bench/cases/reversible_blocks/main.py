"""A reversible residual network on small colour pictures: each half of the channels updates the other."""

import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, channels):
        super().__init__()
        half = channels // 2
        self.f = nn.Sequential(nn.ReLU(), nn.Conv2d(half, half, 3, padding=1))
        self.g = nn.Sequential(nn.ReLU(), nn.Conv2d(half, half, 3, padding=1))

    def forward(self, x):
        first, second = x.chunk(2, dim=1)
        first = first + self.f(second)
        second = second + self.g(first)
        return torch.cat([first, second], dim=1)


class ReversibleNet(nn.Module):
    def __init__(self, channels=16, blocks=10, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.Sequential(*[Coupling(channels) for _ in range(blocks)])
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))


def pictures(count=16):
    label = torch.randint(0, 4, (count,))
    x = torch.randn(count, 3, 8, 8)
    x[torch.arange(count), label.clamp(max=2)] += 1.5
    return x, label


def train(steps=12, rate=0.5):
    torch.manual_seed(0)
    net = ReversibleNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9, nesterov=True)
    for step in range(steps):
        x, label = pictures()
        loss = nn.functional.cross_entropy(net(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{step:3d} {loss.item():.4g}")


train()
