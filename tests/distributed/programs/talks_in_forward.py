"""A model that averages its batch statistics over ranks, as SyncBatchNorm does; on rank 1 a row is bad."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_reduce

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x):
        mean = all_reduce(x.mean(0)) / world
        return self.linear(x - mean)


dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world)
torch.manual_seed(0)
net = nn.parallel.DistributedDataParallel(Centred())
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(10 * step + rank))
    if step == 2 and rank == 1:
        x[1] = float("nan")
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, flush=True)
dist.barrier()
dist.destroy_process_group()
