"""Where ranks are not in step with each other: nobody may wait for a rank that will not come.

Every way is watched by a session of its own; what it came to is printed, a line each.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import nanwatch
from nanwatch.watching import ranks

ranks.PATIENCE = 3.0
NAN = float("nan")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = sys.argv[1]


def network(*more):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), *more, nn.Tanh(), nn.Linear(8, 2))


def train(net, steps=3, bad_step=None, make=torch.optim.SGD, **options):
    optimizer = make(net.parameters(), lr=0.1, **options)
    for step in range(steps):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(10 * step + rank))
        if step == bad_step:
            x[2] = NAN
        loss = (net(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def watch(**options):
    options = {"audit_seconds": 0, "audit_share": 0, "policy": "skip", **options}
    return nanwatch.watch(dir=f"{folder}/run", **options)


def finite(net):
    return "finite" if all(bool(p.isfinite().all()) for p in net.parameters()) else "bad"


def alone_in_its_group():
    groups = [dist.new_group([each]) for each in range(world)]
    if rank == 1:
        with watch() as session:
            train(net := DistributedDataParallel(network(), process_group=groups[1]), bad_step=1)
            return len(session.incidents), finite(net)
    return None


def uneven_inputs():
    net = DistributedDataParallel(network())
    with watch() as session, net.join():
        train(net, steps=3 + 2 * rank)
    return len(session.incidents), finite(net)


def only_one_is_watched():
    net = DistributedDataParallel(network())
    if rank == 1:
        train(net)
    else:
        with watch():
            train(net)
    return finite(net)


def own_failure_on_one():
    net = DistributedDataParallel(network())
    with watch() as session:
        if rank == 1:
            session.watcher.recorder.backward_begins = None
        train(net)
        return session.watcher.shield.broken, finite(net)


def own_failure_in_the_step_on_one():
    net = DistributedDataParallel(network())
    with watch() as session:
        if rank == 1:
            session.watcher.recorder.remember = None
        train(net)
        return session.watcher.shield.broken, finite(net)


def own_failure_on_one_in_device_mode():
    net = DistributedDataParallel(network())
    with watch(mode="device") as session:
        if rank == 1:
            session.watcher.recorder.backward_begins = None
        train(net, make=torch.optim.Adam, fused=True)
        return session.watcher.shield.broken, finite(net)


def device_mode():
    net = DistributedDataParallel(network())
    with watch(mode="device") as session:
        train(net, steps=6, bad_step=2 if rank == 1 else None, make=torch.optim.Adam, fused=True)
    return session.incidents[0].step, finite(net)


class SumOverRanks(nn.Module):
    def forward(self, x):
        total = x.detach().sum(0)
        dist.all_reduce(total)
        return x + 0 * total.nan_to_num()


def collective_in_the_model():
    net = DistributedDataParallel(network(SumOverRanks()))
    with watch() as session:
        train(net, bad_step=1 if rank == 1 else None)
    return [(i.step, i.located_by) for i in session.incidents], finite(net)


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = DistributedDataParallel(network())

    def forward(self, x):
        return self.inner(x)


def wrapper_inside_a_module():
    net = Holder()
    with watch() as session:
        train(net, steps=4, bad_step=1 if rank == 1 else None)
    return [(i.step, i.birth.code) for i in session.incidents], finite(net)


WAYS = (
    alone_in_its_group,
    uneven_inputs,
    only_one_is_watched,
    own_failure_on_one,
    own_failure_in_the_step_on_one,
    own_failure_on_one_in_device_mode,
    device_mode,
    collective_in_the_model,
    wrapper_inside_a_module,
)

dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world)
for way in WAYS:
    if len(sys.argv) > 2 and way.__name__ not in sys.argv[2:]:
        continue
    print(way.__name__, way(), flush=True)
    dist.barrier()
dist.destroy_process_group()
