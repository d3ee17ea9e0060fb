"""`disk_rests`: every snapshot counts, the disk is written within a share of the time, and a new process
finds a good state whatever happens."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from snapshot_trainings import Training, adam, assert_same, batchnorm_onecycle, seed
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import nanwatch
from nanwatch import LastGood, NanwatchError
from nanwatch.act import resting_disk, snapshot_files, snapshots


class Time:
    """A clock that the test moves; each write costs so much CPU time on two CPUs."""

    def __init__(self) -> None:
        self.now, self.cost, self._spent = 1000.0, 0.05, 0.0

    def spent(self) -> float:
        self._spent += self.cost
        return self._spent


REST = 0.05 / 2 / resting_disk.SHARE
"""Seconds after a write."""


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(resting_disk, "monotonic", lambda: time.now)
    monkeypatch.setattr(resting_disk, "thread_time", time.spent)
    monkeypatch.setattr(resting_disk, "_cpus", lambda: 2)
    return time


class Run:
    """A training with a snapshot after every step, and its bits at each."""

    def __init__(self, folder: Path, **options: Any) -> None:
        seed()
        self.folder, self.training, self.bits = folder, batchnorm_onecycle(), dict[int, Any]()
        self.last_good = LastGood(
            *self.training.objects, **{"every": 1, "dir": folder, "disk_rests": True, **options}
        )

    def step(self, *steps: int) -> None:
        for step in steps:
            self.training.step()
            self.last_good.step(step)
            self.last_good.wait()
            self.bits[step] = self.training.bits()

    def back(self, **options: Any) -> int:
        """The step gone back to, with every bit as it was then."""
        self.training.spoil()
        step = self.last_good.rollback(**options)
        assert_same(self.bits[step], self.training.bits())
        return step

    def back_in_a_new_one(self) -> int:
        """What another process would go back to."""
        self.training.spoil()
        with LastGood(*self.training.objects, dir=self.folder) as last_good:
            step = last_good.rollback()
        assert_same(self.bits[step], self.training.bits())
        return step

    @property
    def on_disk(self) -> list[int]:
        return on_disk(self.folder)

    @property
    def in_memory(self) -> list[int]:
        return [step_of(id) for id in self.last_good._shelf._memory.ids()]


def step_of(id: str) -> int:
    return int(id.split("step")[1].split("-")[0])


def on_disk(folder: Path) -> list[int]:
    """The newest first."""
    return [step_of(path.name) for path in sorted(folder.glob("*-rank0"), reverse=True)]


@pytest.fixture
def run(tmp_path: Path, time: Time) -> Iterator[Run]:
    run = Run(tmp_path / "snapshots")
    yield run
    run.last_good.close()


def test_the_first_is_on_disk_and_the_next_in_memory(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    run.step(0)
    assert (run.on_disk, run.in_memory) == ([0], [])
    run.step(1)
    assert (run.on_disk, run.in_memory) == ([0], [1])
    for _ in range(2):  # one in memory can be gone back to again and again
        assert run.back() == 1
        run.training.step()
    run.step(2)
    assert run.back() == 2
    assert capfd.readouterr().err == ""


def test_the_disk_is_written_when_it_has_rested(run: Run, time: Time) -> None:
    run.step(0)
    time.now += REST - 0.01
    run.step(1)
    assert (run.on_disk, run.in_memory) == ([0], [1])
    time.now += 0.02
    run.step(2)
    assert (run.on_disk, run.in_memory) == ([2, 0], [1])
    run.step(3)
    assert (run.on_disk, run.in_memory) == ([2, 0], [3]), "it rests again"
    time.now += REST
    run.step(4)
    time.now += REST
    run.step(5)
    assert (run.on_disk, run.in_memory) == ([5, 4], [])
    assert run.back() == 5


def test_the_disk_never_rests_for_long(run: Run, time: Time) -> None:
    time.cost = 3600.0
    run.step(0)
    time.now += resting_disk.LONGEST - 1
    run.step(1)
    assert run.on_disk == [0]
    time.now += 2
    run.step(2)
    assert run.on_disk == [2, 0]


def test_of_all_the_newest_ones_are_there(run: Run, time: Time) -> None:
    """Wherever they are, the newest and the one before; and no more of them in memory however many come."""
    run.step(0)
    for step in range(1, 30):
        time.now += REST / 7
        run.step(step)
        assert len(run.in_memory) <= 2 and len(run.on_disk) <= 2
        assert run.back(before=step) == step - 1
        assert run.back() == step


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_what_is_on_disk_stays_there_while_others_come_and_go(tmp_path: Path, time: Time, keep: int) -> None:
    run = Run(tmp_path / "snapshots", keep=keep)
    for step in range(keep):
        run.step(step)
        time.now += REST
    run.step(keep)
    expected = list(range(keep, 0, -1))
    assert run.on_disk == expected
    run.step(*range(keep + 1, keep + 9))
    assert run.on_disk == expected
    assert run.in_memory == list(range(keep + 8, 8, -1))
    run.last_good.close()
    assert run.on_disk == [keep + 8, *expected[:-1]]


def test_snapshots_of_the_run_before_stay_until_there_are_enough_on_disk(tmp_path: Path, time: Time) -> None:
    for step in (100, 101):
        before = Run(tmp_path / "snapshots")
        before.step(step)
        before.last_good.close()
    run = Run(tmp_path / "snapshots")
    run.step(0, 1, 2, 3)
    assert run.on_disk == [0, 101, 100]
    time.now += REST
    run.step(4)
    assert run.on_disk == [4, 0]
    run.last_good.close()


def test_the_end_leaves_the_newest_on_disk(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    run.step(0, 1, 2)
    assert (run.on_disk, run.in_memory) == ([0], [2, 1])
    run.last_good.close()
    assert run.on_disk == [2, 0]
    assert run.back_in_a_new_one() == 2
    assert capfd.readouterr().err == ""


def test_the_end_writes_nothing_that_is_there(run: Run, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    run.step(0, 1)
    time.now += REST
    run.step(2)
    monkeypatch.setattr(snapshot_files, "write_tensors", fails)
    run.last_good.close()
    assert run.on_disk == [2, 0]


class SeesFunctions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(func)


class SeesOps(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(func)


def test_the_end_under_modes_of_the_program(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    run.step(0, 1)
    with SeesFunctions(), SeesOps(), torch.inference_mode():
        run.last_good.close()
    assert capfd.readouterr().err == ""
    assert run.back_in_a_new_one() == 1


def fails(*args: Any) -> Any:
    raise OSError(28, "No space left on device")


def test_a_full_disk(run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Costs one warning, and no snapshot; as soon as there is room the next one is written."""
    with monkeypatch.context() as full:
        full.setattr(snapshot_files, "write_tensors", fails)
        run.step(0, 1, 2)
        assert (run.on_disk, run.in_memory) == ([], [2, 1])
        assert run.back() == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(
        "nanwatch: the snapshot of step 0 could not be written to disk (OSError: [Errno 28]"
    )
    assert line.endswith("It is kept in memory, and the disk is tried again when the next one is due.")
    run.step(3)
    assert run.on_disk == [3]
    assert run.back() == 3
    assert capfd.readouterr().err == ""


def test_a_full_disk_after_a_rest_is_said_again(
    run: Run, time: Time, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run.step(0, 1)
    for step in (2, 4):
        time.now += REST
        with monkeypatch.context() as full:
            full.setattr(snapshot_files, "write_tensors", fails)
            run.step(step)
            assert run.back() == step
        assert f"the snapshot of step {step} could not be written" in capfd.readouterr().err
        run.step(step + 1)
    assert run.on_disk == [5, 3]


def test_a_full_disk_at_the_end(
    run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run.step(0, 1)
    with monkeypatch.context() as full:
        full.setattr(snapshot_files, "write_tensors", fails)
        run.last_good.close()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("nanwatch: the newest snapshot could not be written to disk (OSError: [Errno 28]")
    assert line.endswith("A new process would go back to an older one.")
    assert run.back_in_a_new_one() == 0


def test_other_objects_than_those_on_disk_are_written_at_once(run: Run) -> None:
    more = adam()
    run.step(0, 1)
    run.last_good.add(*more.objects)
    run.step(2, 3)
    assert (run.on_disk, run.in_memory) == ([2, 0], [3])


def test_a_folder_that_was_deleted_is_written_at_once(run: Run) -> None:
    run.step(0, 1)
    shutil.rmtree(run.folder)
    run.step(2)
    assert run.on_disk == [2]


def test_a_large_one_is_written_each_time(
    run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resting_disk, "LARGEST", 1000)
    run.step(0, 1, 2)
    assert (run.on_disk, run.in_memory) == ([2, 1], [])
    monkeypatch.setattr(snapshot_files, "write_tensors", fails)
    run.step(3)
    assert run.in_memory == []
    assert "the snapshot of step 3 could not be kept" in capfd.readouterr().err
    assert run.back() == 2


def test_several_ranks_write_each_one(tmp_path: Path, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """They must hold the same ones."""

    class Two(snapshots.Ranks):
        def __init__(self) -> None:
            super().__init__()
            self.size = 2

    monkeypatch.setattr(snapshots, "Ranks", Two)
    run = Run(tmp_path / "snapshots")
    run.step(0, 1, 2)
    run.last_good.close()
    assert run.on_disk == [2, 1, 0]


def test_in_memory_alone_nothing_changes(time: Time) -> None:
    training = adam()
    with LastGood(*training.objects, every=1, disk_rests=True) as last_good:
        for step in range(4):
            last_good.step(step)
        assert last_good.rollback() == 3


@pytest.mark.parametrize("wrong", [1, None, "yes"])
def test_a_wrong_value(wrong: Any) -> None:
    with pytest.raises(NanwatchError, match=f"disk_rests is {wrong!r}; True or False was expected"):
        LastGood(adam().model, disk_rests=wrong)


def watch(training: Training, folder: Path) -> nanwatch.Session:
    options: Any = {"snapshot_every": 1, "audit_seconds": 0.0, "audit_share": 0.0, "explain": False}
    return nanwatch.watch(*training.objects, policy="rollback", dir=folder, **options)


def test_a_session_lets_the_disk_rest(tmp_path: Path, time: Time) -> None:
    seed()
    training = batchnorm_onecycle()
    with watch(training, tmp_path):
        for _ in range(5):
            training.step()
        assert on_disk(tmp_path / "last-good") == [0]
    assert on_disk(tmp_path / "last-good") == [4, 0]
    weights = training.bits()[0]
    training.spoil()
    with LastGood(*training.objects, dir=tmp_path / "last-good") as last_good:
        assert last_good.rollback() == 4
    assert_same(weights, training.bits()[0])


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_snapshots_resting_disk as here

here.resting_disk.SHARE = 1e-9
here.seed()
training = here.batchnorm_onecycle()
session = here.watch(training, Path(sys.argv[2]))
for step in range(6):
    training.step()
    here.torch.save(training.bits()[0], Path(sys.argv[2]) / f"{step}.pt")
session.precautions.last_good.wait()
print([here.step_of(id) for id in session.precautions.last_good._shelf.ids()], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_kill_there_is_the_one_on_disk(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "[5, 4, 0]\n"), done.stderr
    seed(1)
    training = batchnorm_onecycle()
    with LastGood(*training.objects, dir=tmp_path / "last-good") as last_good:
        assert last_good.rollback() == 0
    assert_same(torch.load(tmp_path / "0.pt"), training.bits()[0])
