"""Rank 1 gets a bad batch, and its model takes its time, so that its report comes long after the decision."""

import time

import torch
import torch.distributed as dist
from torch import nn


class Slow(nn.Module):
    def forward(self, x):
        if not x.isfinite().all():
            time.sleep(2)
        return x


dist.init_process_group("gloo")
net = nn.parallel.DistributedDataParallel(nn.Sequential(Slow(), nn.Linear(4, 2)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    x = torch.ones(3, 4)
    if dist.get_rank() == 1 and step == 2:
        x[1] = float("nan")
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
