"""Snapshots on disk: what is not whole, not finite or not ours is passed over, and the one before is used."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from snapshot_trainings import Training, assert_same, masked, net, seed
from torch import nn

from nanwatch import LastGood, NanwatchError
from nanwatch.act.checkpoint_gate import checkpoint_gate
from nanwatch.act.checkpoint_part import write_tensors

FILES = ["__0_0.distcp", ".metadata", "state.json", "manifest.json"]


def small() -> Training:
    model = net(nn.BatchNorm1d(8))
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))


class Written:
    """A training with snapshots of steps 0 and 1 on disk, and its bits at both."""

    def __init__(self, folder: Path) -> None:
        seed()
        self.folder, self.training, self.bits = folder, small(), []
        with LastGood(*self.training.objects, every=1, dir=folder) as last_good:
            for step in range(2):
                self.training.step()
                last_good.step(step)
                self.bits.append(self.training.bits())

    @property
    def snapshots(self) -> list[Path]:
        """The newest first."""
        return sorted(self.folder.glob("*-rank0"), reverse=True)

    def back(self) -> int:
        """The step gone back to, with every bit as it was then."""
        self.training.spoil()
        with LastGood(*self.training.objects, dir=self.folder) as last_good:
            step = last_good.rollback()
        assert_same(self.bits[step], self.training.bits())
        return step


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "snapshots")


def said(capfd: pytest.CaptureFixture[str], snapshot: Path) -> str:
    """Why the snapshot was passed over, in one sentence that names it."""
    (line,) = capfd.readouterr().err.splitlines()
    before = f"nanwatch: the snapshot {snapshot} is passed over: "
    assert line.startswith(before)
    return line.removeprefix(before)


def test_the_newest_is_used(written: Written, capfd: pytest.CaptureFixture[str]) -> None:
    assert [path.name.split("-")[2] for path in written.snapshots] == ["step1", "step0"]
    assert sorted(path.name for path in written.snapshots[0].iterdir()) == sorted(FILES)
    assert written.back() == 1
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_bit_is_noticed(written: Written, file: str, capfd: pytest.CaptureFixture[str]) -> None:
    path, chance = written.snapshots[0] / file, random.Random(file)
    whole = path.read_bytes()
    places = [0, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(8))]
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        assert written.back() == 0, place
        assert said(capfd, written.snapshots[0]) == f"{file} is not as it was written (its checksum differs)."
    path.write_bytes(whole)
    assert written.back() == 1


@pytest.mark.parametrize("file", FILES)
def test_a_truncated_or_missing_file_is_noticed(
    written: Written, file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = written.snapshots[0] / file
    os.truncate(path, path.stat().st_size // 2)
    assert written.back() == 0
    assert said(capfd, written.snapshots[0]).startswith(f"{file} ")
    path.unlink()
    assert written.back() == 0
    assert said(capfd, written.snapshots[0]) == f"{file} is missing."


def test_when_none_is_whole_nothing_is_changed(written: Written, capfd: pytest.CaptureFixture[str]) -> None:
    for snapshot in written.snapshots:
        (snapshot / "state.json").unlink()
    before = written.training.bits()
    with (
        LastGood(*written.training.objects, dir=written.folder) as last_good,
        pytest.raises(NanwatchError, match=r"every one .* was passed over .* Nothing was changed"),
    ):
        last_good.rollback()
    assert_same(before, written.training.bits())
    assert len(capfd.readouterr().err.splitlines()) == 2


def other_shape() -> Training:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.01))


def other_names() -> Training:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.01))


def other_dtype() -> Training:
    model = net(nn.BatchNorm1d(8)).double()
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.01))


def other_optimizer() -> Training:
    model = net(nn.BatchNorm1d(8))
    return Training(model, torch.optim.Adam(model.parameters(), lr=0.01))


def other_groups() -> Training:
    model = net(nn.BatchNorm1d(8))
    groups = [{"params": [p]} for p in model.parameters()]
    return Training(model, torch.optim.SGD(groups, lr=0.01))


OTHERS = {
    other_shape: "it is of another model: 3.weight is 2x8 float32 in it and 3x8 float32 now.",
    other_names: "it is of another model: Sequential has no 1.weight.",
    other_dtype: "it is of another model: 0.weight is 8x4 float32 in it and 8x4 float64 now.",
    other_optimizer: "it holds the state of a SGD, where there is a Adam now.",
    other_groups: "the parameter groups of SGD are others now.",
}


@pytest.mark.parametrize("make", OTHERS, ids=lambda make: make.__name__)
def test_another_model(
    written: Written, make: Callable[[], Training], capfd: pytest.CaptureFixture[str]
) -> None:
    """Its own snapshots are used, those of the model before are neither used nor lost."""
    training, mine = make(), written.snapshots
    with LastGood(*training.objects, every=1, dir=written.folder) as last_good:
        with pytest.raises(NanwatchError, match="every one on this or another rank was passed over"):
            last_good.rollback()
        lines = capfd.readouterr().err.splitlines()
        assert [line.split("passed over: ")[1] for line in lines] == [OTHERS[make]] * 2
        for step in range(4):
            last_good.step(step)
        assert last_good.rollback() == 3
    assert set(mine) < set(written.snapshots) and len(written.snapshots) == 4
    assert written.back() == 1, "its own model goes back to it still"


def test_a_run_that_goes_on_drops_the_snapshots_of_the_run_before(written: Written) -> None:
    """In a folder of its own, two are kept over all runs; and the newest is the last written, not the highest
    step."""
    old = written.snapshots
    with LastGood(*written.training.objects, every=1, dir=written.folder) as last_good:
        last_good.step(0)
        last_good.wait()
        assert set(old) < set(written.snapshots), "one of this run is not yet two"
        last_good.step(1)
        last_good.wait()
        assert not set(old) & set(written.snapshots) and len(written.snapshots) == 2


def test_the_folder_is_taken(written: Written, tmp_path: Path) -> None:
    program = (
        "import sys, torch, nanwatch\n"
        "try: nanwatch.LastGood(torch.nn.Linear(1, 1), dir=sys.argv[1])\n"
        "except nanwatch.NanwatchError as error: print(error)"
    )
    with LastGood(*written.training.objects, every=1, dir=written.folder) as last_good:
        with pytest.raises(NanwatchError, match="is in use by another LastGood"):
            LastGood(*written.training.objects, dir=written.folder)
        command = [sys.executable, "-c", program, str(written.folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.stdout == (
            f"nanwatch.LastGood: {written.folder} is in use by another LastGood. "
            "Give each training a folder of its own.\n"
        )
        last_good.step(0)
    LastGood(*written.training.objects, dir=written.folder).close()


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NanwatchError, match=r"cannot write to .*file.*Give another folder"):
        LastGood(nn.Linear(1, 1), dir=tmp_path / "file")


def test_a_folder_that_was_deleted_is_made_again(written: Written) -> None:
    with LastGood(*written.training.objects, every=1, dir=written.folder) as last_good:
        shutil.rmtree(written.folder)
        with pytest.raises(NanwatchError, match="none has been kept yet"):
            last_good.rollback()
        last_good.step(7)
        assert last_good.rollback() == 7


def test_what_a_killed_process_left_is_cleared_away(written: Written) -> None:
    for name in ("1-000000-step5-rank0.part", "1-000000-step4-rank0.gone"):
        (written.folder / name).mkdir()
        (written.folder / name / "state.json").touch()
    (written.folder / "1-000000-step5-rank1.part").mkdir()  # another rank may be writing it
    assert written.back() == 1
    left = sorted(path.name for path in written.folder.iterdir() if path not in written.snapshots)
    assert left == ["1-000000-step5-rank1.part", "rank0.lock"]


class Evil:
    """Runs code when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def forge(snapshot: Path) -> None:
    """Checksums that fit the files again."""
    manifest = json.loads((snapshot / "manifest.json").read_text().splitlines()[0])
    for name in manifest["files"]:
        raw = (snapshot / name).read_bytes()
        manifest["files"][name] = [len(raw), zlib.crc32(raw)]
    line = json.dumps(manifest)
    (snapshot / "manifest.json").write_text(f"{line}\n{hashlib.sha256(line.encode()).hexdigest()}\n")


def test_no_pickle_is_executed(written: Written, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mark, newest = tmp_path / "executed", written.snapshots[0]
    evil = pickle.dumps(Evil(mark), protocol=2)
    (newest / ".metadata").write_bytes(evil)
    forge(newest)
    assert written.back() == 1

    content = json.loads((newest / "state.json").read_text())
    content["tensors"][0][2:] = [0, len(evil)]
    (newest / "state.json").write_text(json.dumps(content))
    (newest / "__0_0.distcp").write_bytes(evil)
    forge(newest)
    assert written.back() == 0
    assert "Weights only load failed" in said_first(capfd)
    assert not mark.exists()
    pickle.loads(evil)
    assert mark.exists(), "this test could not fail"


def said_first(capfd: pytest.CaptureFixture[str]) -> str:
    return capfd.readouterr().err.splitlines()[0]


def test_a_snapshot_with_a_nan_in_it_is_passed_over(
    written: Written, capfd: pytest.CaptureFixture[str]
) -> None:
    """However it came there."""
    newest = written.snapshots[0]
    content = json.loads((newest / "state.json").read_text())
    content["outline"]["objects"][1]["groups"][0]["settings"] = [["lr", float("nan")]]
    (newest / "state.json").write_text(json.dumps(content))
    forge(newest)
    assert written.back() == 0
    assert said(capfd, newest) == "1.SGD.param_groups.0.lr holds NaN or Inf."


def test_torchs_own_tools_read_the_tensors(tmp_path: Path) -> None:
    """A part is an ordinary checkpoint of torch.distributed.checkpoint."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    tensors = {"a.b": torch.randn(3, 2), "empty": torch.empty(0, 4), "one": torch.tensor(7)}
    write_tensors(tmp_path / "part", tensors)
    dcp_to_torch_save(tmp_path / "part", tmp_path / "whole.pt")
    assert_same(tensors, torch.load(tmp_path / "whole.pt", weights_only=False))


def test_the_gate_before_checkpoints_lets_a_snapshot_pass(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seed()
    training = masked()
    with checkpoint_gate(), LastGood(*training.objects, every=1, dir=tmp_path) as last_good:
        training.step()
        last_good.step(0)
        good = training.bits()
        training.spoil()
        assert last_good.rollback() == 0
    assert_same(good, training.bits())
    assert capfd.readouterr().err == ""


def test_the_training_goes_on_while_the_disk_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the copy, and for the snapshot before, but not for the disk."""
    go_on, began = threading.Event(), threading.Event()

    def slow(folder: Path, tensors: Any) -> Any:
        began.set()
        assert go_on.wait(60)
        return write_tensors(folder, tensors)

    monkeypatch.setattr("nanwatch.act.snapshot_files.write_tensors", slow)
    training = small()
    with LastGood(*training.objects, every=1, dir=tmp_path) as last_good:
        training.step()
        last_good.step(0)
        assert began.wait(60)
        good = training.bits()
        training.spoil()  # while it is being written
        second = threading.Thread(target=last_good.step, args=(1,))
        second.start()
        assert not list(tmp_path.glob("*-rank0")) and second.is_alive()
        go_on.set()
        second.join()
        assert last_good.rollback() == 0
    assert_same(good, training.bits())


FULL = """
import resource, sys
sys.path.insert(0, sys.argv[1])
import torch
import test_snapshots_files as here
from nanwatch import LastGood
here.seed()
training = here.small()
with LastGood(*training.objects, every=1, dir=sys.argv[2]) as last_good:
    for step in range(8):
        training.step()
        last_good.step(step)
        last_good.wait()
        if step == 2:
            good = training.bits()
            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, most))
    training.spoil()
    print(last_good.rollback())
    here.assert_same(good, training.bits())
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    for step in range(8, 10):
        last_good.step(step)
    print(last_good.rollback())
"""


def test_a_full_disk_costs_one_warning_and_no_snapshot(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(Path(__file__).parent), str(tmp_path / "snapshots")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "2\n9\n"), done.stderr
    (line,) = done.stderr.splitlines()
    assert (
        line.startswith("nanwatch: the snapshot of step 3 could not be kept (") and "File too large" in line
    )
    assert line.endswith("untouched, and the next one is tried when it is due.")
    assert len(list((tmp_path / "snapshots").iterdir())) == 3
