"""Trains with DDP; from step 6 to 9 the batches of rank 1 are bad. Writes what each rank ends with."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world)
torch.manual_seed(0)
net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
for step in range(14):
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(10 * step + rank))
    if rank == 1 and 6 <= step < 10:
        x[0] = float("nan")
    optimizer.zero_grad()
    (net(x) - 1).square().mean().backward()
    optimizer.step()
torch.save({"weights": net.state_dict(), "rate": optimizer.param_groups[0]["lr"]}, f"{sys.argv[1]}-{rank}.pt")
dist.barrier()
dist.destroy_process_group()
