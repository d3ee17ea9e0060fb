"""Accumulates four micro-batches a step under DDP, once for each `layout:fault` given after the folder.

Layout: `no_sync` (the gradients are averaged after the last one), `each` (after each one, as without
`no_sync`), `hook` (no_sync with a communication hook), `talks` (the model talks to other
ranks), `view` (no_sync, gradients as views of the buckets).
Fault, in the second micro-batch of step 2 and on rank 1 only: `batch`, `loss`, `backward`; `left-out`: that
one never came (with `each`: on no rank). `last`: the batch fault in the last micro-batch; `last-left-out`:
its step has no last micro-batch, on no rank.
"""

import contextlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

STEPS, PARTS, BAD = 4, 4, (2, 1)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Talks(nn.Linear):
    def forward(self, x):
        mean = x.detach().mean(0)
        dist.all_reduce(mean)
        return super().forward(x - 0 * mean.nan_to_num())


def wrapped(layout):
    torch.manual_seed(0)
    norm = nn.LayerNorm(8) if layout == "each" else nn.BatchNorm1d(8)
    first = Talks(4, 8) if layout == "talks" else nn.Linear(4, 8)
    net = nn.Sequential(first, norm, nn.Dropout(0.2), nn.Linear(8, 2))
    net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=layout == "view")
    if layout == "hook":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

        net.register_comm_hook(None, allreduce_hook)
    return net, torch.optim.AdamW(net.parameters(), lr=1e-2)


def batch(step, part):
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(100 * step + 10 * part + rank))


def train(net, optimizer, layout, fault):
    at = (BAD[0], PARTS - 1) if fault.startswith("last") else BAD
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(PARTS):
            here = (step, part) == at
            if here and fault.endswith("left-out") and (rank == 1 or layout == "each"):
                continue
            bad = here and rank == 1
            x = batch(step, part)
            if bad and fault in ("batch", "last"):
                x[2] = float("nan")
            alone = layout != "each" and part < PARTS - 1
            with net.no_sync() if alone else contextlib.nullcontext():
                loss = (net(x) - 1).square().mean() / PARTS
                if bad and fault == "loss":
                    loss = loss + torch.tensor(float("nan"))
                if bad and fault == "backward":
                    loss = loss + torch.sqrt(0 * loss)  # 0, with a derivative that is not finite
                loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()


dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world)
for part in sys.argv[2:]:
    layout, fault = part.split(":")
    net, optimizer = wrapped(layout)
    torch.manual_seed(rank)
    train(net, optimizer, layout, fault)
    state = {
        "weights": net.state_dict(),
        "moments": optimizer.state_dict()["state"],
        "rng": torch.get_rng_state(),
    }
    torch.save(state, f"{sys.argv[1]}/{layout}-{fault}-{rank}.pt")
dist.barrier()
dist.destroy_process_group()
