"""Accumulates four micro-batches a step under DDP and a GradScaler, once for each
`optimizer:layout:ending:fault` given after the folder.

Optimizer: `plain`, `fused` (it unscales by itself). Layout: `no_sync` (the gradients are averaged after the
last micro-batch), `each` (after each one). Ending: `clip` (unscaled and clipped), `left` (to the scaler).
Fault, in steps 2 and 3: `batch`, `loss` (with a finite gradient), `backward` (with a finite loss) on rank 1
only; `first`, in its first micro-batch; `both`, on each rank another; `all`, all of rank 1. With `-left-out`
behind it: those never came (with `each`: on no rank; `all`: nor the others of their step). `search`: the
scale is too large at first. `fails`: it is, and nanwatch fails on rank 1. In step 2 the scaler of rank 1
alone finds something, in a weight that the ranks do not share: `one-scaler`, only with the scale; `one-bad`,
a NaN in the second micro-batch.
"""

import contextlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

STEPS, PARTS = 6, 4
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BAD_PARTS = {
    "batch": {1: [1]},
    "loss": {1: [1]},
    "backward": {1: [1]},
    "first": {1: [0]},
    "both": {0: [1], 1: [2]},
    "all": {1: [0, 1, 2, 3]},
}


def wrapped(kind, layout, fault):
    torch.manual_seed(0)
    norm = nn.LayerNorm(8) if layout == "each" else nn.BatchNorm1d(8)
    net = nn.Sequential(nn.Linear(4, 8), norm, nn.Dropout(0.2), nn.Linear(8, 2))
    net = nn.parallel.DistributedDataParallel(net)
    own = [nn.Parameter(torch.ones(()))] if fault.startswith("one-") else []
    optimizer = torch.optim.AdamW([*net.parameters(), *own], lr=1e-2, fused=kind == "fused")
    scale = 2.0**19 if fault in ("search", "fails") else 2.0**8
    return net, own, optimizer, torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2)


def batch(step, part):
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(100 * step + 10 * part + rank))


def loss_of(net, own, step, part, fault):
    x = batch(step, part)
    bad = step in (2, 3) and part in BAD_PARTS.get(fault, {}).get(rank, ())
    if bad and fault not in ("loss", "backward"):
        x[2] = float("nan")
    with torch.autocast("cpu", dtype=torch.float16 if fault in ("search", "fails") else torch.bfloat16):
        loss = (net(x).float() - 1).square().mean() / PARTS
    if bad and fault == "loss":
        loss = loss + torch.tensor(float("nan"))
    if bad and fault == "backward":
        loss = loss + torch.sqrt(0 * loss)  # 0, with a derivative that is not finite
    for weight in own:
        loss = loss + weight * own_factor(step, part, fault)
    return loss


def own_factor(step, part, fault):
    if step != 2 or rank != 1:
        return 1e-3
    return 1e36 if fault == "one-scaler" else (float("nan") if part == 1 else 1e-3)


def parts_left_out(layout, fault):
    if not fault.endswith("-left-out"):
        return []
    bad = BAD_PARTS[fault.removesuffix("-left-out")]
    together = layout == "each" or fault.startswith("all")
    return [part for parts in bad.values() for part in parts] if together else bad.get(rank, [])


def break_nanwatch():
    from nanwatch.watching.recorder import Recorder

    def broken(*args, **kwargs):
        raise RuntimeError("broken on purpose")

    Recorder.module_begins = broken


def train(net, own, optimizer, scaler, layout, ending, fault):
    left_out = parts_left_out(layout, fault)
    for step in range(STEPS):
        if step in (2, 3) and len(left_out) == PARTS:
            continue
        optimizer.zero_grad()
        if fault == "fails" and step == 1 and rank == 1:
            break_nanwatch()
        for part in range(PARTS):
            if step in (2, 3) and part in left_out:
                continue
            alone = layout != "each" and part < PARTS - 1
            with net.no_sync() if alone else contextlib.nullcontext():
                scaler.scale(loss_of(net, own, step, part, fault)).backward()
        if ending == "clip":
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()


dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world)
for run in sys.argv[2:]:
    kind, layout, ending, fault = run.split(":")
    net, own, optimizer, scaler = wrapped(kind, layout, fault)
    torch.manual_seed(rank)
    train(net, own, optimizer, scaler, layout, ending, fault)
    state = {
        "weights": net.state_dict(),
        "moments": optimizer.state_dict()["state"],
        "scaler": scaler.state_dict(),
        "rng": torch.get_rng_state(),
    }
    torch.save(state, f"{sys.argv[1]}/{run.replace(':', '-')}-{rank}.pt")
dist.barrier()
dist.destroy_process_group()
