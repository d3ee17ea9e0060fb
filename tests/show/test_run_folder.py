"""The run folder on a real disk: kept, never torn, never half-written."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nanwatch.records import Birth, Cause, Frame, Hop, Incident, Numbers, Remedy, Run, StepFacts
from nanwatch.show import step_log
from nanwatch.show.folder import (
    RunFolder,
    UnreadableIncident,
    incident_folders,
    read_incident,
    read_run,
    read_steps,
)

RUN = Run(("python", "train.py"), "2025-01-01T00:00:00", {"torch": "2.13.0"}, ("cpu",))
INCIDENT = Incident(
    step=5,
    rank=0,
    kind="nan",
    phase="forward",
    birth=Birth(
        "aten._softmax.default",
        "pool.attn",
        "训练.py",
        19,
        code="attn = scores.softmax(-1)",
        stack=(Frame("训练.py", 19, "forward", "attn = scores.softmax(-1)"),),
        inputs=(Numbers((2, 4), "float32", "cpu", 8, neginf=8, name="self"),),
        outputs=(Numbers((2, 4), "float32", "cpu", 8, nan=8),),
        samples=(0, 1),
    ),
    action="raised",
    cause=Cause("fully-masked-row", "proved", "every score of row 0 is -inf"),
    remedies=(Remedy("masked-softmax", "use nanwatch.stable.masked_softmax", True),),
    travel=(Hop("aten.bmm.default", "forward", "pool.attn", "训练.py", 20),),
)


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANWATCH_LANG", "en")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", "train.py")


def test_default_folder_is_named_after_time_and_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = RunFolder.create(None, "scripts/my train.py")
    assert folder.path.is_absolute() and folder.path.parent == tmp_path / "nanwatch-runs"
    assert re.fullmatch(r"\d{8}-\d{6}-my-train", folder.path.name)
    assert folder.path.is_dir()


def test_default_folders_of_the_same_second_are_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: RunFolder.create(None, "train.py").path, range(16)))
    assert len(set(folders)) == 16


@pytest.mark.parametrize("script", ["", ".py", "../..", "package.module", "训练.py", "x" * 500 + ".py"])
def test_odd_script_names_give_a_folder(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = RunFolder.create(None, script).path
    assert path.parent == tmp_path / "nanwatch-runs" and path.is_dir()


def test_run_is_written_and_read(folder: RunFolder) -> None:
    folder.write_run(RUN)
    folder.write_run(dataclasses.replace(RUN, world_size=2))
    assert read_run(folder.path).world_size == 2
    assert sorted(p.name for p in folder.path.iterdir()) == ["incidents", "run.json"]


def test_an_earlier_run_in_the_same_folder_is_kept(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        folder = RunFolder.create(tmp_path, "train.py")
        folder.write_run(dataclasses.replace(RUN, started=f"run {number}"))
        folder.append_step(0, StepFacts(step=number))
        folder.write_incident(dataclasses.replace(INCIDENT, step=number))
        folder.close()
    started = {p.name: read_run(p).started for p in tmp_path.glob("run*.json")}
    assert started == {"run-1.json": "run 1", "run-2.json": "run 2", "run.json": "run 3"}
    steps = {p.name: [s.step for s in read_steps(p)] for p in tmp_path.glob("*.jsonl")}
    assert steps == {
        "run-1-steps-rank0.jsonl": [1],
        "run-2-steps-rank0.jsonl": [2],
        "steps-rank0.jsonl": [3],
    }
    assert [(p.name, read_incident(p).step) for p in incident_folders(tmp_path)] == [
        ("0001", 1),
        ("0002", 2),
        ("0003", 3),
    ]


def test_a_late_rank_does_not_move_what_rank_0_of_this_run_wrote(tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path, "train.py", rank=0)
    first.write_run(RUN)
    first.append_step(0, StepFacts(0))
    second = RunFolder.create(tmp_path, "train.py", rank=1)
    second.append_step(1, StepFacts(0))
    first.close(), second.close()
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["incidents", "run.json", "steps-rank0.jsonl", "steps-rank1.jsonl"]


def test_steps_come_back_as_they_were(folder: RunFolder) -> None:
    steps = [
        StepFacts(0, loss=1.5, grad_norm=0.25, lr=(1e-3, 1e-4), scale=65536.0, seconds=0.01),
        StepFacts(1, loss="nan", events=("forward", "backward", "skip"), facts={"头": 3}),
        StepFacts(2),
    ]
    for facts in steps:
        folder.append_step(0, facts)
    folder.close()
    assert list(read_steps(folder.path / "steps-rank0.jsonl")) == steps


def test_numbers_json_lacks_are_written_as_text(folder: RunFolder) -> None:
    folder.append_step(0, StepFacts(0, loss=math.nan, facts={"norms": [math.inf], "path": Path("x")}))
    folder.close()
    (facts,) = read_steps(folder.path / "steps-rank0.jsonl")
    assert facts == StepFacts(0, loss="nan", facts={"norms": ["inf"], "path": "x"})


def test_lines_reach_the_disk_after_64_or_a_second(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(step_log.time, "monotonic", lambda: clock[0])
    path = folder.path / "steps-rank0.jsonl"

    def on_disk() -> int:
        return len(list(read_steps(path)))

    folder.append_step(0, StepFacts(0))
    assert on_disk() == 1, "the first line is written at once"
    for step in range(1, 64):
        folder.append_step(0, StepFacts(step))
    assert on_disk() == 1
    folder.append_step(0, StepFacts(64))
    assert on_disk() == 65
    folder.append_step(0, StepFacts(65))
    clock[0] += 1.0
    folder.append_step(0, StepFacts(66))
    assert on_disk() == 67


KILLED = """
import sys, time
from pathlib import Path
from nanwatch.records import StepFacts
from nanwatch.show.folder import RunFolder
folder = RunFolder.create(Path(sys.argv[1]), "train.py")
for step in range(100000000):
    folder.append_step(0, StepFacts(step, loss=0.5, events=("forward", "backward")))
    if step == 5000:
        print("go", flush=True)
"""


def test_a_killed_run_leaves_whole_lines(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"go\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    path = tmp_path / "steps-rank0.jsonl"
    steps = [facts.step for facts in read_steps(path)]
    assert len(steps) > 5000 - 64 and steps == list(range(len(steps)))


def test_a_torn_last_line_is_passed_over_and_mended(tmp_path: Path) -> None:
    path = tmp_path / "steps-rank0.jsonl"
    path.write_bytes(b'{"step":0}\n{"step":1,"lo')
    assert [s.step for s in read_steps(path)] == [0]
    log = step_log.StepLog(path)
    log.append(StepFacts(2))
    log.close()
    assert [s.step for s in read_steps(path)] == [0, 2]


def test_foreign_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_bytes(b'[]\n\n\xff\xfe\n"x"\n{"step":"one"}\n{"step":7,"unknown":1}\n')
    assert list(read_steps(path)) == [StepFacts(7)]


def test_a_forked_child_does_not_write_the_lines_of_its_parent(folder: RunFolder) -> None:
    for step in range(3):
        folder.append_step(0, StepFacts(step))
    child = os.fork()
    if child == 0:
        folder.close()
        os._exit(0)
    os.waitpid(child, 0)
    folder.close()
    assert [s.step for s in read_steps(folder.path / "steps-rank0.jsonl")] == [0, 1, 2]


def test_lines_are_made_and_written_many_at_a_time(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = StepFacts(3, loss=1.2345, grad_norm=0.5, lr=(1e-3,), seconds=0.01, events=("forward", "backward"))
    folder.append_step(0, facts)  # opens the file
    monkeypatch.setattr(step_log, "FLUSH_SECONDS", math.inf)
    real, written = os.write, []
    monkeypatch.setattr(os, "write", lambda file, data: written.append(data) or real(file, data))
    for _ in range(640):
        folder.append_step(0, facts)
    assert [data.count(b"\n") for data in written] == [step_log.FLUSH_LINES] * 10


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "steps.jsonl"
    log = step_log.StepLog(path)
    log.append(StepFacts(0))
    log.append(StepFacts(1))
    real, calls = os.write, []

    def full(descriptor: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[:4])

    with monkeypatch.context() as patch:
        patch.setattr(step_log.os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            log.flush()
    assert path.read_bytes() == b'{"step":0}\n'
    log.append(StepFacts(2))
    log.close()
    assert [s.step for s in read_steps(path)] == [0, 2]


def test_an_incident_comes_back_as_it_was(folder: RunFolder) -> None:
    path = folder.write_incident(INCIDENT, lambda p: p.write_bytes(b"tensors") and None, "print('好')\n")
    assert path == folder.path / "incidents" / "0001"
    assert read_incident(path) == INCIDENT == read_incident(path / "incident.json")
    assert (path / "tensors.safetensors").read_bytes() == b"tensors"
    assert (path / "repro.py").read_text(encoding="utf-8") == "print('好')\n"
    assert folder.incidents() == [path]
    assert "训练.py" in (path / "incident.json").read_text(encoding="utf-8")


def test_an_incident_has_the_fields_of_the_contract(folder: RunFolder) -> None:
    data = json.loads((folder.write_incident(INCIDENT) / "incident.json").read_bytes())
    assert {
        "schema",
        "step",
        "rank",
        "kind",
        "phase",
        "birth",
        "cause",
        "experiments",
        "remedies",
        "action",
    } <= set(data)
    assert data["schema"] == 1 and data["birth"]["inputs"][0]["neginf"] == 8


def test_file_names_that_are_not_unicode_survive(folder: RunFolder) -> None:
    odd = dataclasses.replace(INCIDENT, birth=dataclasses.replace(INCIDENT.birth, file="tr\udcffin.py"))
    assert read_incident(folder.write_incident(odd)) == odd


WRITER = """
import sys
from pathlib import Path
from nanwatch.show.folder import RunFolder, read_incident
incident = read_incident(Path(sys.argv[1]) / "incidents" / "0001")
rank = int(sys.argv[2])
folder = RunFolder.create(Path(sys.argv[1]), "train.py", rank=rank)
for _ in range(25):
    folder.write_incident(incident, lambda p: p.write_bytes(b"x" * 1000) and None, "pass")
"""


def test_ranks_writing_together_do_not_collide(folder: RunFolder) -> None:
    folder.write_incident(INCIDENT)
    ranks = [subprocess.Popen([sys.executable, "-c", WRITER, folder.path, str(rank)]) for rank in range(1, 4)]
    assert [rank.wait() for rank in ranks] == [0, 0, 0]
    names = [path.name for path in folder.incidents()]
    assert names == [f"{n:04d}" for n in range(1, 77)]
    assert all(read_incident(path) == INCIDENT for path in folder.incidents())
    assert len(list((folder.path / "incidents").iterdir())) == 76


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_half_written_incident_is_never_seen(folder: RunFolder, error: BaseException) -> None:
    def save(path: Path) -> None:
        path.write_bytes(b"half")
        raise error

    with pytest.raises(type(error)):
        folder.write_incident(INCIDENT, save)
    assert list((folder.path / "incidents").iterdir()) == []


def test_what_a_killed_writer_left_is_no_incident(folder: RunFolder) -> None:
    (folder.path / "incidents" / ".writing-abc").mkdir()
    assert folder.incidents() == []
    assert folder.write_incident(INCIDENT).name == "0001"


def test_a_run_folder_that_was_deleted_is_made_again(folder: RunFolder) -> None:
    (folder.path / "incidents").rmdir()
    assert folder.write_incident(INCIDENT).name == "0001"


def test_a_file_in_the_way_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(OSError):
        RunFolder.create(tmp_path / "taken", "train.py")
    with pytest.raises(OSError):
        RunFolder.create(tmp_path / "taken" / "below", "train.py")


def test_falling_back_says_where_the_records_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "taken").write_text("x")
    folder, warning = RunFolder.create_or_fall_back(tmp_path / "taken", "train.py")
    assert folder is not None and folder.path.parent == tmp_path / "tmp" / "nanwatch-runs"
    assert warning == (
        f"nanwatch: the run folder {tmp_path / 'taken'} cannot be written (File exists). "
        f"Records go to {folder.path} instead; training goes on."
    )
    assert RunFolder.create_or_fall_back(tmp_path / "fine", "train.py")[1] is None


def test_when_nothing_can_be_written_there_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("x")
    monkeypatch.setattr("tempfile.tempdir", str(taken))
    folder, warning = RunFolder.create_or_fall_back(taken, "train.py")
    assert folder is None
    assert warning == (
        f"nanwatch: no run folder can be written, neither {taken} nor {taken / 'nanwatch-runs'} "
        "(File exists). Watching goes on, and incidents are shown here only; training goes on."
    )


def message_of(path: Path) -> str:
    with pytest.raises(UnreadableIncident) as caught:
        read_incident(path)
    return str(caught.value)


def test_a_missing_incident_is_named(tmp_path: Path) -> None:
    expected = "A folder with an incident.json was expected, for example nanwatch-runs/…/incidents/0001"
    assert message_of(tmp_path) == f"{tmp_path}: no such incident. {expected}"
    assert message_of(tmp_path / "0007") == f"{tmp_path / '0007'}: no such incident. {expected}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "{",
            "not valid JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)).",
        ),
        ("[]", "not an incident (Incident: expected an object, found list)."),
        ('{"schema": 9}', "schema 9, this nanwatch reads schema 1. Update nanwatch, then read it again."),
    ],
)
def test_what_is_wrong_in_a_file_is_said(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "incident.json"
    file.write_text(text)
    assert message_of(tmp_path).startswith(f"{file}: {sentence}")


def test_a_wrong_field_is_said_with_what_was_expected(folder: RunFolder) -> None:
    path = folder.write_incident(dataclasses.replace(INCIDENT, phase="sideways"))
    assert message_of(path) == (
        f"{path / 'incident.json'}: phase is sideways, expected one of: "
        "data, weights, forward, loss, backward, optimizer"
    )


def test_bytes_that_are_no_text_are_said(tmp_path: Path) -> None:
    (tmp_path / "incident.json").write_bytes(b"\xff\xfe")
    assert "not valid JSON (invalid start byte)" in message_of(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_without_space_is_an_oserror() -> None:
    with pytest.raises(OSError, match="No space left on device"):
        step_log.StepLog(Path("/dev/full")).append(StepFacts(0))


NO_ROOM = """
import resource, signal, sys
from pathlib import Path
from nanwatch.records import Birth, Incident, StepFacts
from nanwatch.show.folder import RunFolder
folder = RunFolder.create(Path(sys.argv[1]), "train.py")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
failed = []
for step in range(1000):
    try:
        folder.append_step(0, StepFacts(step, loss=0.123456789))
    except OSError:
        failed.append("steps")
try:
    incident = Incident(0, 0, "nan", "data", Birth(None, None, None, None), "raised")
    folder.write_incident(incident, lambda path: path.write_bytes(b"x" * 9000) and None)
except OSError:
    failed.append("incident")
print(sorted(set(failed)))
"""


def test_a_disk_that_runs_full_leaves_a_readable_folder(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", NO_ROOM, tmp_path], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("['incident', 'steps']\n", "")
    raw = (tmp_path / "steps-rank0.jsonl").read_bytes()
    assert raw.endswith(b"\n") and len(raw) <= 4000
    assert len(list(read_steps(tmp_path / "steps-rank0.jsonl"))) == raw.count(b"\n") > 0
    assert list((tmp_path / "incidents").iterdir()) == []
