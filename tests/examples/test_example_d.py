"""Document D: bags of feature sequences, attention pooling, Accelerate. Every fault ends in its cause."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from running import EXAMPLES, Nursery, assert_quiet, assert_told, incidents_in, listed, truths, watched

PROGRAM = "attention_pooling"
TRUTHS = truths("D")
QUICK = ("--no-tensorboard",)
LIMIT = 110


def test_every_fault_has_a_truth(nursery: Nursery, tmp_path: Path) -> None:
    assert listed(nursery, PROGRAM, tmp_path).keys() == TRUTHS.keys()


@pytest.mark.parametrize("fault", TRUTHS)
def test_fault(fault: str, nursery: Nursery, tmp_path: Path) -> None:
    assert_told(watched(nursery, PROGRAM, tmp_path, *QUICK, "--fault", fault), TRUTHS[fault])


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_healthy(precision: str, nursery: Nursery, tmp_path: Path) -> None:
    found = watched(nursery, PROGRAM, tmp_path, *QUICK, "--precision", precision)
    assert_quiet(found)
    assert "Epoch 5/5 | Train Loss: 0." in found.done.stdout


def test_what_it_leaves(nursery: Nursery, tmp_path: Path) -> None:
    """History and event files are those of a run without nanwatch."""
    program = str(EXAMPLES / PROGRAM / "__main__.py")
    done = nursery.run([program, "--epochs", "2", "--output", "plain"], tmp_path)
    assert done.returncode == 0, done.stderr
    found = watched(nursery, PROGRAM, tmp_path, "--epochs", "2", "--output", "seen")
    assert found.done.stdout == done.stdout
    plain, seen = (tmp_path / name / "training_history.csv" for name in ("plain", "seen"))
    assert seen.read_text() == plain.read_text()
    with seen.open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2"]
    if find_spec("tensorboard") is None:
        assert "TensorBoard is not installed" in done.stdout
    else:
        assert list((tmp_path / "seen").glob("events.out.tfevents.*"))


def torchrun(folder: Path, *options: str, fault: str) -> subprocess.CompletedProcess[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    nanwatch = ["-m", "nanwatch", "run", "--dir", str(folder / "run"), *options]
    program = [str(EXAMPLES / PROGRAM), *QUICK, "--epochs", "2", "--fault", fault]
    return subprocess.run(
        [sys.executable, *launcher, *nanwatch, *program],
        cwd=folder,
        env=dict(os.environ, OMP_NUM_THREADS="1", NO_COLOR="1", NANWATCH_LANG="en"),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def test_two_processes_skip_together(tmp_path: Path) -> None:
    """The bad bag is in the batch of one process; the update is left out by both, and both go on."""
    done = torchrun(tmp_path, "--policy", "skip", fault="nan-features")
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Epoch 2/2" in done.stdout and "Val Loss: nan" not in done.stdout, done.stdout
    skipped = [
        [
            line
            for line in (tmp_path / "run" / f"steps-rank{rank}.jsonl").read_text().splitlines()
            if "skip" in line
        ]
        for rank in (0, 1)
    ]
    assert len(skipped[0]) == len(skipped[1]) == 2, "once an epoch"
    told = incidents_in(tmp_path / "run")
    assert [(i["action"], i["cause"]["id"], i["phase"]) for i in told] == [
        ("skipped", "bad-input", "data")
    ] * 2


def test_two_processes_stop_together(tmp_path: Path) -> None:
    done = torchrun(tmp_path, fault="nan-features")
    assert done.returncode != 0 and "exitcode  : 3" in done.stderr, done.stderr[-4000:]
    assert "Epoch" not in done.stdout, "both were stopped in the first epoch"
    (incident,) = incidents_in(tmp_path / "run")
    assert (incident["action"], incident["cause"]["id"]) == ("raised", "bad-input")
    assert "went bad on another rank, so this rank takes the same decision" in " ".join(done.stderr.split())
