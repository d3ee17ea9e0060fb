"""Document B: a mixture of experts on the CPU. Every stage and every race ends in its cause."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from running import EXAMPLES, Nursery, assert_quiet, assert_told, listed, truths, watched

PROGRAM = "moe_cpu_experts"
TRUTHS = truths("B")
NEEDS_GPU = ["copy-early"]
ON_CPU = ("--device", "cpu", "--tokens", "6")


def test_every_fault_has_a_truth(nursery: Nursery, tmp_path: Path) -> None:
    assert listed(nursery, PROGRAM, tmp_path).keys() == TRUTHS.keys()


@pytest.mark.parametrize("fault", [name for name in TRUTHS if name not in NEEDS_GPU])
def test_fault(fault: str, nursery: Nursery, tmp_path: Path) -> None:
    truth = TRUTHS[fault]
    incident = assert_told(watched(nursery, PROGRAM, tmp_path, *ON_CPU, "--fault", fault), truth)
    assert Path(incident["birth"]["file"]).name == truth["file"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("fault", NEEDS_GPU)
def test_fault_on_a_gpu(fault: str, nursery: Nursery, tmp_path: Path) -> None:
    assert_told(watched(nursery, PROGRAM, tmp_path, "--fault", fault), TRUTHS[fault])


@pytest.mark.parametrize("fault", NEEDS_GPU)
def test_without_a_gpu_it_says_so(fault: str, nursery: Nursery, tmp_path: Path) -> None:
    done = plainly(nursery, tmp_path, "--fault", fault)
    assert done.returncode == 2
    assert done.stderr == f"--fault {fault} needs a GPU, and this run is on cpu\n"


def test_healthy(nursery: Nursery, tmp_path: Path) -> None:
    """No alarm, and the same text as without nanwatch."""
    done = plainly(nursery, tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line[:10] for line in done.stdout.splitlines()] == ["the river ", "a warm day", "who wrote "]
    found = watched(nursery, PROGRAM, tmp_path, *ON_CPU)
    assert_quiet(found)
    assert found.done.stdout == done.stdout


def plainly(nursery: Nursery, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return nursery.run([str(EXAMPLES / PROGRAM / "__main__.py"), *ON_CPU, *arguments], folder)
