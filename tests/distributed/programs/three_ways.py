"""Trains a small network on every rank, once for each `wrapper:fault` given after the folder for results.

The wrapper is ddp, fsdp2 or accelerate. At step 3, and on rank 1 only: `batch` puts NaN into one row,
`loss` adds a NaN that has no gradient, `backward` gives a bad derivative of a finite loss. `left-out` leaves
the step out on all ranks. With `:caught` the program goes on when it is stopped.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

STEPS, BAD_STEP = 5, 3
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def wrapped(wrapper):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    if wrapper == "ddp":
        net = nn.parallel.DistributedDataParallel(net)
    elif wrapper == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (world,))
        for layer in (net[0], net[2], net):
            fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    if wrapper == "accelerate":
        from accelerate import Accelerator

        net, optimizer = Accelerator(cpu=True).prepare(net, optimizer)
    return net, optimizer


def train(net, optimizer, fault):
    for step in range(STEPS):
        bad = step == BAD_STEP and rank == 1
        if step == BAD_STEP and fault == "left-out":
            continue
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(10 * step + rank))
        if bad and fault == "batch":
            x[2] = float("nan")
        loss = (net(x) - 1).square().mean()
        if bad and fault == "loss":
            loss = loss + torch.tensor(float("nan"))
        if bad and fault == "backward":
            loss = loss + torch.sqrt(0 * loss)  # 0, with a derivative that is not finite
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def whole(thing):
    if isinstance(thing, dict):
        return {key: whole(value) for key, value in thing.items()}
    return thing.full_tensor() if hasattr(thing, "full_tensor") else thing


dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world)
for part in sys.argv[2:]:
    wrapper, fault, *caught = part.split(":")
    net, optimizer = wrapped(wrapper)
    try:
        train(net, optimizer, fault)
    except FloatingPointError as error:
        if not caught:
            raise
        print(f"stopped: {error}")
    state = whole({"weights": net.state_dict(), "moments": optimizer.state_dict()["state"]})
    torch.save(state, f"{sys.argv[1]}/{wrapper}-{fault}-{rank}.pt")
dist.barrier()
dist.destroy_process_group()
