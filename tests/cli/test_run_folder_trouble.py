"""A run folder that cannot be written, a disk that runs full, a folder taken away: training goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from workshop import Workshop, environment

TRAINING = """
    import os, shutil, sys, torch
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(int(sys.argv[1])):
        optimizer.zero_grad()
        loss = model(torch.randn(2, 2)).square().mean()
        if step == int(sys.argv[2]):
            loss = (loss * 0 - 1).log()
        loss.backward()
        optimizer.step()
        if step == 2 and len(sys.argv) > 3:
            shutil.rmtree(sys.argv[3])
    print(loss.item(), model.weight.tolist(), torch.rand(1).item())
"""


def run(
    workshop: Workshop, folder: Path | str, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    command = ["-m", "nanwatch", "run", "--dir", str(folder), "script.py", *arguments]
    assert workshop.nursery is not None
    return workshop.nursery.run(command, workshop.folder, **more)


@pytest.mark.parametrize("where", ["a file in the way", "/proc"])
def test_a_folder_that_cannot_be_made(workshop: Workshop, where: str, tmp_path: Path) -> None:
    workshop.write("script.py", TRAINING)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    if where == "/proc":
        folder, why = Path("/proc/nanwatch-run"), "No such file or directory"
    else:
        folder, why = workshop.write("file", "") / "run", "Not a directory"
    plain = workshop.python("script.py", "5", "-1")
    done = run(workshop, folder, "5", "-1", TMPDIR=str(temporary))
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    (instead,) = (temporary / "nanwatch-runs").iterdir()
    assert done.stderr == (
        f"nanwatch: the run folder {folder} cannot be written ({why}). "
        f"Records go to {instead} instead; training goes on.\n"
    )
    assert (instead / "run.json").exists()
    assert len((instead / "steps-rank0.jsonl").read_text().splitlines()) == 5


def test_no_folder_at_all(workshop: Workshop, tmp_path: Path) -> None:
    """Neither the folder asked for nor the temporary one: an incident is still found and stops the run."""
    workshop.write("script.py", TRAINING)
    blocked = workshop.write("file", "")
    (tmp_path / "temporary").mkdir()
    (tmp_path / "temporary" / "nanwatch-runs").write_text("a file in the way")
    done = run(workshop, blocked / "run", "5", "3", TMPDIR=str(tmp_path / "temporary"))
    assert done.returncode == 3
    lines = [line for line in done.stderr.splitlines() if line.startswith("nanwatch:")]
    assert lines == [
        f"nanwatch: no run folder can be written, neither {blocked}/run nor "
        f"{tmp_path}/temporary/nanwatch-runs (Not a directory). Watching goes on, "
        "and incidents are shown here only; training goes on."
    ]
    assert "aten.log.default" in done.stderr


def test_a_folder_taken_away_while_running(workshop: Workshop) -> None:
    """The step records go on into a file nobody sees; an incident makes the folder again."""
    workshop.write("script.py", TRAINING)
    plain = workshop.python("script.py", "80", "-1")
    done = run(workshop, workshop.runs, "80", "-1", str(workshop.runs))
    assert done.returncode == 0
    assert done.stdout == plain.stdout
    assert done.stderr.count("\n") <= 1
    again = run(workshop, workshop.runs, "80", "70", str(workshop.runs))
    assert again.returncode == 3
    written = json.loads((workshop.runs / "incidents/0001/incident.json").read_text())
    assert written["step"] == 70


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A real file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True
    )
    if not mounted or mounted.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(workshop: Workshop, small_disk: Path) -> None:
    workshop.write("script.py", TRAINING)
    plain = workshop.python("script.py", "900", "-1")
    done = run(workshop, small_disk / "run", "900", "-1")
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    assert done.stderr == (
        f"nanwatch: the step records of rank 0 cannot be written to {small_disk}/run "
        "(No space left on device). Watching goes on without a timeline; training goes on.\n"
    )
    for line in (small_disk / "run/steps-rank0.jsonl").read_bytes().splitlines():
        json.loads(line)


def test_a_full_disk_at_the_incident(workshop: Workshop, small_disk: Path) -> None:
    workshop.write("script.py", TRAINING)
    (small_disk / "run").mkdir()
    (small_disk / "filler").write_bytes(b"x" * (64 * 1024 - 16 * 1024))
    done = run(workshop, small_disk / "run", "30", "20")
    assert done.returncode == 3
    lines = [line for line in done.stderr.splitlines() if line.startswith("nanwatch:")]
    assert all("No space left on device" in line for line in lines) and len(lines) <= 2
    assert "aten.log.default" in done.stderr
    for incident in (small_disk / "run/incidents").iterdir():
        json.loads((incident / "incident.json").read_text())  # whole, or not there


def test_a_file_size_limit(workshop: Workshop) -> None:
    """RLIMIT_FSIZE, as batch systems set it: the signal it sends must not kill the training."""
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
    path = workshop.write("script.py", TRAINING)
    path.write_text(limit + path.read_text())
    plain = workshop.python("script.py", "200", "-1")
    done = run(workshop, workshop.runs, "200", "-1")
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    assert done.stderr == (
        f"nanwatch: the step records of rank 0 cannot be written to {workshop.runs} (File too large). "
        "Watching goes on without a timeline; training goes on.\n"
    )


def test_stderr_closed(workshop: Workshop) -> None:
    """Nowhere to say anything: the incident is in the folder, the exit code is right."""
    workshop.write("script.py", TRAINING)
    command = f"{sys.executable} -m nanwatch run --dir {workshop.runs} script.py 5 3 2>&-"
    done = subprocess.run(command, shell=True, cwd=workshop.folder, env=environment(), timeout=60)
    assert done.returncode == 3
    assert (workshop.runs / "incidents/0001/incident.json").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(workshop: Workshop) -> None:
    workshop.write("script.py", TRAINING)
    workshop.runs.mkdir(mode=0o500)
    done = run(workshop, workshop.runs, "5", "-1")
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1 and "Permission denied" in done.stderr
