"""Two real processes that write one checkpoint: one decision, whoever has the bad part, and nobody waits."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from nursery import Nursery

START = """
import os, sys, warnings
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from nanwatch.act import agreement, checkpoint_gate

warnings.simplefilter("ignore")
rank = int(os.environ["RANK"])

def files(folder):
    return {name: open(os.path.join(folder, name), "rb").read() for name in os.listdir(folder)}

def meet():
    dist.init_process_group("gloo", init_method="file://" + os.environ["MEETING"], rank=rank, world_size=2)
"""


def on_two_ranks(program: str, folder: Path, nursery: Nursery) -> list[str]:
    """What each rank said on stderr."""
    script = folder / "program.py"
    script.write_text(START + textwrap.dedent(program), encoding="utf-8")
    (folder / "run").mkdir()
    ranks = nursery.run_ranks([str(script)], folder / "run", folder / "meeting")
    said = [rank.stderr for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)
    return said


TOGETHER = """
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

checkpoint_gate.install()
meet()
mesh = init_device_mesh("cpu", (2,))
weight = distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [Shard(0)])
mask = torch.full((3,), float("-inf"))
state = {"model": {"weight": weight, "mask": mask}, "step": 1}
dcp.save(state, checkpoint_id="model")
dist.barrier()
good = files("model")
if rank == 1:
    weight.to_local()[0, 0] = float("nan")
dcp.save(state, checkpoint_id="model")
dcp.async_save(state, checkpoint_id="model").result()
writer = dcp.FileSystemWriter("model")
dcp.save(state, storage_writer=writer)
assert str(writer.path) == "model"
dist.barrier()
assert files("model") == good
if rank == 1:
    weight.to_local()[0, 0] = 7.0
dist.barrier()
dcp.save(state, checkpoint_id="model")
dist.barrier()
assert files("model") != good

from nanwatch.act import judging

def boom(*_, **__):
    raise ValueError("boom")

if rank == 1:
    judging.bad_tensors = boom
dcp.save({"model": {"weight": torch.full((2,), float("nan"))}}, checkpoint_id="other")
"""


def test_all_ranks_go_aside_when_one_has_a_bad_part(tmp_path: Path, nursery: Nursery) -> None:
    first, said = on_two_ranks(TOGETHER, tmp_path, nursery)
    assert first.count("nanwatch") == 1 and "other all the same" in first
    assert said.count("boom") == 1, "a gate that fails on one rank must open on all"
    assert said.count("model.weight (1 NaN, 0 +Inf, 0 -Inf of 4)") == 3
    run = tmp_path / "run"
    aside = ["nonfinite-2-model", "nonfinite-3-model", "nonfinite-model"]
    assert sorted(os.listdir(run)) == ["model", *aside, "other"]
    for name, expected in (("model", [7.0]), ("nonfinite-model", [])):
        assert sorted(os.listdir(run / name)) == [".metadata", "__0_0.distcp", "__1_0.distcp"]
        state = {"model": {"weight": torch.zeros(4, 2)}}
        dcp.load(state, checkpoint_id=run / name)
        weight = state["model"]["weight"]
        assert weight[0].tolist() == [0.0, 1.0] and weight[3].tolist() == [6.0, 7.0]
        assert weight[2, :1].tolist() == expected or (not expected and weight[2, 0].isnan())


ONE_GATE = """
agreement.PATIENCE = 2.0
if rank == 0:
    checkpoint_gate.install()
meet()
state = {"model": {"weight": torch.full((2,), float("nan"))}}
dcp.save(state, checkpoint_id="model")
dcp.save(state, checkpoint_id="model")

from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = accelerator.prepare(torch.nn.Linear(1, 1))
torch.nn.init.constant_(model.module.weight, float("nan"))
if accelerator.is_main_process:  # some programs let one rank save
    accelerator.save_state("state")
"""


def test_a_rank_without_a_gate_is_not_waited_for(tmp_path: Path, nursery: Nursery) -> None:
    said, quiet = on_two_ranks(ONE_GATE, tmp_path, nursery)
    assert said.count("not all ranks came") == 2, "once for each kind of save"
    assert said.count("weight (2 NaN") == 2 and "model all the same" in said
    assert "nanwatch" not in quiet
    assert sorted(os.listdir(tmp_path / "run")) == ["model", "nonfinite-state"]


ACCELERATE = """
from accelerate import Accelerator

checkpoint_gate.install()
meet()
accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == 2
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
model = accelerator.prepare(model)
accelerator.save_state("state")
accelerator.wait_for_everyone()
good = files("state")
if rank == 1:
    model.module[1].running_mean[0] = float("inf")
accelerator.save_state("state")
accelerator.wait_for_everyone()
assert files("state") == good
assert sorted(files("nonfinite-state")) == sorted(good)
"""


def test_ranks_that_add_their_files_to_one_folder_use_the_same(tmp_path: Path, nursery: Nursery) -> None:
    _, said = on_two_ranks(ACCELERATE, tmp_path, nursery)
    assert "1.running_mean (0 NaN, 1 +Inf, 0 -Inf of 2)" in said
    names = ["model.safetensors", "random_states_0.pkl", "random_states_1.pkl"]
    assert sorted(os.listdir(tmp_path / "run" / "nonfinite-state")) == names
