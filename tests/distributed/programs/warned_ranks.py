"""Trains on every rank, once for each `wrapper:what` given after the folder for results.

Wrappers: `ddp`; `fsdp2`; `two` DDP models, each with an optimizer and a schedule; `grid`: fsdp2 on two rows
of ranks; `chain`: of three ranks the first two train one model together and the last two another.

From step 24 on the loss of the last rank doubles in each step, by a number that has no gradient: no other
rank sees it. What else there is:

    rise            nothing
    none            not even this
    by-hand         not even this, and the program itself lowers the rate at steps 31 and 37
    all             the rise is on all ranks
    mild            on all ranks, one step later on each; a warning lowers the rate by a tenth
    floor           a rate may fall to 0.3 of what it was
    fails           nanwatch fails on rank 0 when it lowers the rate
    no-precautions  it fails there to look ahead, at step 3
    fails-late      it fails there in the very step in which the rate would be lowered
    skip, back      this step is bad on rank 0, and left out, or the reason to go back
    joined          it happens within `join`, which ends before the last steps
    unwatched       rank 0 is not watched
    device          the verdicts stay on the device

With `:plain` nobody is.
"""

import contextlib
import json
import math
import os
import sys
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

import nanwatch
from nanwatch.act import lowering
from nanwatch.watching import ranks

ranks.PATIENCE = 3.0
STEPS, RISE, LOWERED = 42, 24, 31
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = sys.argv[1]


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        groups = [(ranks, dist.new_group(ranks)) for ranks in ([0, 1], [1, 2])]
        self.links = nn.ModuleList(
            nn.parallel.DistributedDataParallel(nn.Linear(4, 2), process_group=group)
            for ranks, group in groups
            if rank in ranks
        )

    def forward(self, x):
        return sum(link(x) for link in self.links)


def network(wrapper):
    if wrapper == "chain":
        return Chain()
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    if wrapper in ("ddp", "two"):
        return nn.parallel.DistributedDataParallel(net)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    shape = (world,) if wrapper == "fsdp2" else (2, world // 2)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("outer", "inner")[: len(shape)])
    for layer in (net[0], net[2], net):
        fully_shard(layer, mesh=mesh)
    return net


def addition(step, what):
    begin = RISE + rank if what == "mild" else RISE
    here = rank == world - 1 or what in ("all", "mild")
    return 2.0 ** (step - begin) if here and what not in ("none", "by-hand") and step > begin else 0.0


def train(wrapper, what, session):
    torch.manual_seed(0)
    nets = [network(wrapper) for _ in range(2 if wrapper == "two" else 1)]
    optimizers = [
        torch.optim.AdamW(net.parameters(), lr=0.01 * 4**n, fused=what == "device")
        for n, net in enumerate(nets)
    ]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.99) for o in optimizers if wrapper == "two"]
    rates = []
    with contextlib.ExitStack() as joined:
        for step in range(STEPS):
            if what == "joined" and step == 2:
                joined.enter_context(nets[0].join())
            if what == "joined" and step == STEPS - 2:
                joined.close()
            if what == "no-precautions" and rank == 0 and step == 3:
                session.precautions.step_done = None
            for n, (net, optimizer) in enumerate(zip(nets, optimizers, strict=True)):
                x = torch.randn(6, 4, generator=torch.Generator().manual_seed(100 * step + 10 * n + rank))
                loss = (net(x) - 1).square().mean() + addition(step, what)
                if what in ("skip", "back") and rank == 0 and step == LOWERED:
                    loss = loss + torch.tensor(math.nan)
                if what == "fails-late" and rank == 0 and step == LOWERED:
                    session.watcher.recorder.remember = None
                    session.watcher.updates.last = None
                if what == "by-hand" and step in (LOWERED, LOWERED + 6):
                    optimizer.param_groups[0]["lr"] *= 0.5
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            for schedule in schedules:
                schedule.step()
            rates.append([group["lr"] for optimizer in optimizers for group in optimizer.param_groups])
    return nets, optimizers, rates


def whole(thing):
    if isinstance(thing, dict):
        return {key: whole(value) for key, value in thing.items()}
    return thing.full_tensor() if hasattr(thing, "full_tensor") else thing


def watched(wrapper, what):
    policy = nanwatch.Policy(
        skip_in_a_row=0 if what == "back" else 3,
        rollbacks=3,
        rate_factor=0.9 if what == "mild" else 0.5,
        lower_rate_on_warning=True,
    )
    options = {"audit_seconds": 0, "audit_share": 0, "explain": False, "snapshot_every": 10}
    options["mode"] = "device" if what == "device" else "auto"
    lowest = 0.3 if what == "floor" else lowering.LOWEST
    scale = None if what == "fails" and rank == 0 else lowering.scale_rates
    with (
        mock.patch.multiple(lowering, LOWEST=lowest, scale_rates=scale),
        nanwatch.watch(policy=policy, dir=f"{folder}/{wrapper}-{what}", **options) as session,
    ):
        return *train(wrapper, what, session), session


dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world)
for part in sys.argv[2:]:
    wrapper, what, *plain = part.split(":")
    if plain or (what == "unwatched" and rank == 0):
        nets, optimizers, rates = train(wrapper, what, None)
        said = {}
    else:
        nets, optimizers, rates, session = watched(wrapper, what)
        lowered = [facts.step for facts in session.history if "rate-lowered" in facts.events]
        said = {"lowered": lowered, "warned": [alarm.step for alarm in session.warnings]}
        said |= {"broken": session.watcher.shield.broken, "done": [session.skipped, session.rolled_back]}
    weights = [whole(net.state_dict()) for net in nets]
    moments = [whole(optimizer.state_dict()["state"]) for optimizer in optimizers]
    state = {"weights": weights, "moments": moments, "rates": rates}
    torch.save(state, f"{folder}/{part.replace(':', '-')}-{rank}.pt")
    print(json.dumps({"part": part, **said}), flush=True)
    dist.barrier()
dist.destroy_process_group()
