"""Looks for a good learning rate: raises it until the loss leaves, puts the weights back and trains with a tenth."""

import copy
import math

import torch
from torch import nn

torch.manual_seed(0)


def network():
    return nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 1))


def batch():
    x = torch.randn(64, 16)
    return x, torch.sin(x[:, :1]) + 0.5 * x[:, 1:2]


def step(model, optimizer):
    x, y = batch()
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def search(model, low=1e-4, high=1e3, steps=60):
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=low)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, (high / low) ** (1 / steps))
    best_loss, best_rate = math.inf, low
    for _ in range(steps):
        rate = schedule.get_last_lr()[0]
        loss = step(model, optimizer)
        print(f"rate {rate:.2e} loss {loss:.4g}")
        if loss < best_loss:
            best_loss, best_rate = loss, rate
        if loss > 20 * best_loss:
            break
        schedule.step()
    model.load_state_dict(before)
    return best_rate / 10


model = network()
rate = search(model)
print(f"train with {rate:.2e}")
optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
for number in range(10):
    print(number, f"{step(model, optimizer):.4f}")
