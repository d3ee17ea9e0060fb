"""Segments climate fields into storm and no storm: the short configuration, without warm-up."""

import argparse

import numpy as np
import torch
from torch import nn


class WarmupCosine(torch.optim.lr_scheduler.LRScheduler):
    def __init__(self, optimizer, warmup, total):
        self.warmup, self.total = np.float64(warmup), np.float64(total)
        super().__init__(optimizer)

    def get_lr(self):
        done = np.float64(self.last_epoch)
        rising = done / self.warmup
        falling = 0.5 * (1 + np.cos(np.pi * (done - self.warmup) / (self.total - self.warmup)))
        return [float(base * np.minimum(rising, falling)) for base in self.base_lrs]


def unet():
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1)
    )


def fields():
    x = torch.randn(4, 4, 16, 16)
    return x, (x.mean(dim=1, keepdim=True) > 0.5).float()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=0)
    options = parser.parse_args()
    np.seterr(all="ignore")
    torch.manual_seed(0)
    model = unet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = WarmupCosine(optimizer, options.warmup, options.steps)
    for step in range(options.steps):
        x, storm = fields()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), storm)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{step}: loss {loss.item():.4f} rate {schedule.get_last_lr()[0]:.4g}")
        schedule.step()


main()
