"""SIGKILL at any moment, again and again: there is always a good state to go back to, the newest."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from snapshot_trainings import Training, batchnorm_onecycle, seed

from nanwatch import LastGood

SERVER = """
import os, sys
sys.path.insert(0, sys.argv[1])
import torch.distributed.checkpoint
import test_snapshots_killed as here

torch.set_num_threads(1)  # no threads before a fork
training = here.batchnorm_onecycle()
with here.LastGood(*training.objects) as last_good:  # what torch imports late is imported here
    training.step()
    last_good.step(0)
    last_good.rollback()
for folder in sys.stdin:  # one training for each line: torch is imported once
    child = os.fork()
    if child == 0:
        here.train(folder.strip())
    print(child, flush=True)
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


def digest(training: Training) -> str:
    weights = [*training.model.state_dict().values(), *training.optimizer.state_dict()["state"][0].values()]
    memory = b"".join(t.numpy().tobytes() for t in [*weights, torch.get_rng_state()])
    return hashlib.sha256(memory).hexdigest()


def train(folder: str) -> None:
    """Goes on from the last good state for ever, a snapshot every step; logs what each step is to be, and
    each snapshot that is complete."""
    seed()
    training = batchnorm_onecycle()
    log = os.open(f"{folder}.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    last_good = LastGood(*training.objects, every=1, dir=folder)
    step = last_good.rollback() if any(Path(folder).glob("*-rank0")) else -1
    while True:
        step += 1
        training.step()
        os.write(log, f"begun {step} {digest(training)}\n".encode())
        last_good.step(step)
        if step % 3:  # else the next step finds it being written
            last_good.wait()
            os.write(log, f"done {step}\n".encode())


def check(folder: Path) -> int:
    """The step that a new process goes back to: the last completed or a later one, with all its bits."""
    begun, done = {}, -1
    for line in Path(f"{folder}.log").read_text().splitlines():
        what, step, *digests = line.split()
        if what == "begun":
            begun[int(step)] = digests[0]
        else:
            done = int(step)
    training = batchnorm_onecycle()
    with LastGood(*training.objects, dir=folder) as last_good:
        step = last_good.rollback()
    assert step >= done
    assert begun[step] == digest(training)
    return step


def await_more(what: str, more: int, log: Path) -> float:
    """Until so many more steps have begun, or are done. Returns how long the last of them took."""
    before, times = logged(what, log), [time.monotonic()]
    while len(times) <= more and times[0] + 60 > time.monotonic():
        if logged(what, log) >= before + len(times):
            times.append(time.monotonic())
        time.sleep(0.002)
    assert len(times) > more, f"{len(times) - 1} of {more} more steps were {what} within a minute"
    return times[-1] - times[-2]


def await_a_part(folder: Path) -> None:
    """Until a file is half written, which on a busy machine chance alone may never meet."""
    until = time.monotonic() + 5
    while not any(folder.glob("*.part")) and time.monotonic() < until:
        time.sleep(0.0005)


def logged(what: str, log: Path) -> int:
    return log.read_text().count(what) if log.exists() else 0


def kill_again_and_again(kills: int, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", SERVER, str(Path(__file__).parent)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None and server.stdout is not None
    chance, half_written, steps = random.Random(0), 0, [0]
    log, a_step = Path(f"{folder}.log"), 1.0
    try:
        for turn in range(kills):
            server.stdin.write(f"{folder}\n")
            server.stdin.flush()
            child = int(server.stdout.readline())
            if turn % 8 != 1:  # else before it has begun
                if turn % 2:
                    await_more("begun", 2, log)
                    await_a_part(folder)
                else:  # a step forward, however slow the disk is
                    a_step = min(a_step, await_more("done", 1 if turn else 3, log))
                    time.sleep(chance.uniform(0, 1.5 * a_step))
            os.kill(child, signal.SIGKILL)
            assert server.stdout.readline() == "dead\n"
            half_written += any(folder.glob("*.part"))
            steps.append(check(folder))
    finally:
        server.kill()
        server.wait()
    assert steps == sorted(steps) and steps[-1] > steps[1], steps
    assert half_written > kills / 20, "killed at other moments only"
    assert capfd.readouterr().err == "", "nothing was ever passed over"


def test_killed_twenty_times(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kill_again_and_again(20, tmp_path / "snapshots", capfd)


@pytest.mark.slow
def test_killed_two_hundred_times(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kill_again_and_again(200, tmp_path / "snapshots", capfd)
