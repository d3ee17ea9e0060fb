"""SIGKILL at any moment of a save over a good checkpoint: the name always holds a whole and good one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, os, random, signal, sys, time
import torch
from safetensors.torch import load_file, save_file
from nanwatch.act import checkpoint_gate
from nanwatch.tensors import wait_until_ready

torch.set_num_threads(1)
wait_until_ready()
how, kills, gated = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "gated"
name = {"torch": "model.pt", "safetensors": "model.safetensors", "lightning": "model.ckpt"}[how]
random.seed(0)

def state(value):
    return {f"layers.{i}.weight": torch.full((256, 256), float(value)) for i in range(8)}

if how == "lightning":
    from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

def save(value):
    if how == "lightning":
        TorchCheckpointIO().save_checkpoint(state(value), name)
    else:
        torch.save(state(value), name) if how == "torch" else save_file(state(value), name)

def load():
    return load_file(name) if how == "safetensors" else torch.load(name)

def train(pipe):
    step = 1
    while True:
        os.write(pipe, b"x")
        save(step)
        if gated:
            save(float("nan"))
        step += 1

def seen():
    try:
        values = {float(t.unique().item()) for t in load().values()}
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return values.pop() if len(values) == 1 else f"mixed: {values}"

if gated:
    checkpoint_gate.install()
sys.stderr = open(os.devnull, "w")
save(0)
found = []
for _ in range(kills):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        train(write)
    for _ in range(random.randint(1, 3)):  # on a busy machine, too, something is saved in between
        os.read(read, 1)
    time.sleep(random.uniform(0.0, 0.04))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read), os.close(write)
    found.append(seen())
    for file in os.listdir():
        if file != name and os.path.isfile(file):
            os.remove(file)
print(json.dumps(found))
"""


def found_after(kills: int, how: str, folder: Path, gated: bool = True) -> list[Any]:
    program = folder / "program.py"
    program.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    (folder / "run").mkdir()
    command = [sys.executable, str(program), how, str(kills), "gated" if gated else "plain"]
    environment = {**os.environ, "TMPDIR": str(folder / "run")}  # Lightning's temporary files
    done = subprocess.run(
        command, cwd=folder / "run", env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    assert len(found) == kills
    return found


def all_whole_and_good(found: list[Any]) -> bool:
    return all(isinstance(value, float) and value >= 0 for value in found)


@pytest.mark.parametrize("how", ["torch", "safetensors"])
def test_twenty_kills(how: str, tmp_path: Path) -> None:
    found = found_after(20, how, tmp_path)
    assert all_whole_and_good(found), found
    assert len(set(found)) > 1, "nothing was saved in between: the kills came too early to show anything"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["torch", "safetensors", "lightning"])
def test_two_hundred_kills(how: str, tmp_path: Path) -> None:
    found = found_after(200, how, tmp_path)
    assert all_whole_and_good(found), found


@pytest.mark.slow
def test_without_the_gate_a_kill_leaves_a_torn_file(tmp_path: Path) -> None:
    assert not all_whole_and_good(found_after(100, "torch", tmp_path, gated=False))
