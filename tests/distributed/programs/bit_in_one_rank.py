"""Trains under DDP; before step 6 the memory of rank 1 turns over a bit of a weight. Saves the weights."""

import ctypes
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

STEPS, BAD_STEP = 10, 6
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world)
torch.manual_seed(0)
net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for step in range(STEPS):
    if step == BAD_STEP and rank == 1:
        ctypes.c_uint32.from_address(net.module[0].weight.data_ptr() + 4 * 5).value ^= 1 << 27
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(10 * step + rank))
    optimizer.zero_grad()
    (net(x) - 1).square().mean().backward()
    optimizer.step()
torch.save(net.state_dict(), f"{sys.argv[1]}/weights-{rank}.pt")
dist.barrier()
dist.destroy_process_group()
