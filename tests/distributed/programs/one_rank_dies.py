"""Rank 1 is gone after two steps, without a word."""

import os

import torch
import torch.distributed as dist
from torch import nn

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world)
net = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    loss = net(torch.ones(3, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    if rank == 1 and step == 2:
        os._exit(9)
    optimizer.step()
    print("made step", step, flush=True)
