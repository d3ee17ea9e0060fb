"""The run folder: everything a run learned, in files that any tool reads.

    run.json                             what ran
    steps-rank0.jsonl                    a line a step, one file a rank
    incidents/0001/incident.json         and tensors.safetensors, repro.py beside it

A folder that already holds a run loses nothing: its `run.json` becomes `run-1.json`, its
`steps-rank0.jsonl` becomes `run-1-steps-rank0.jsonl` (then run-2, …), and new incidents take the next
free number. Each rank moves its own step records, rank 0 moves `run.json` too, so ranks that start
together do not disturb each other.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nanwatch.messages import say
from nanwatch.records import Incident, Run, StepFacts, from_json, to_json
from nanwatch.records.incident import ACTIONS, KINDS, PHASES, SCHEMA
from nanwatch.show import step_log
from nanwatch.show.step_log import StepLog

DEFAULT_PARENT = "nanwatch-runs"
INCIDENT_FILE = "incident.json"
TENSORS_FILE = "tensors.safetensors"
REPRO_FILE = "repro.py"


class UnreadableIncident(ValueError):
    """Says which file, what was found in it and what was expected."""


class RunFolder:
    """The run folder of one process. Every method that writes raises OSError when it cannot."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._logs: dict[int, StepLog] = {}

    @classmethod
    def create(cls, dir: Path | None, script_name: str, rank: int = 0) -> RunFolder:
        """`dir`, or a new folder `nanwatch-runs/<time>-<script>` below the current directory.

        All ranks of a run must be given the same `dir` (rank 0 creates, and hands on `.path`).
        """
        if dir is None:
            path = _new_folder(Path(DEFAULT_PARENT), script_name)
        else:
            path = Path(dir)
            path.mkdir(parents=True, exist_ok=True)
            _keep_earlier_run(path, rank)
        (path / "incidents").mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass  # an existing folder may be read-only: learn it now, not at the incident
        return cls(path.absolute())

    @classmethod
    def create_or_fall_back(
        cls, dir: Path | None, script_name: str, rank: int = 0
    ) -> tuple[RunFolder | None, str | None]:
        """The folder, in the temporary directory when the one asked for cannot be written, or None
        when neither can; and the sentence to warn with, if any. Never raises OSError."""
        wanted = Path(DEFAULT_PARENT) if dir is None else Path(dir)
        try:
            return cls.create(dir, script_name, rank), None
        except OSError as error:
            why = reason(error)
        fallback = Path(tempfile.gettempdir()) / DEFAULT_PARENT
        try:
            folder = cls.create(_new_folder(fallback, script_name), script_name, rank)
        except OSError:
            return None, say("watch.folder_lost", path=wanted, fallback=fallback, why=why)
        return folder, say("watch.folder_fallback", path=wanted, why=why, fallback=folder.path)

    def write_run(self, run: Run) -> None:
        _write_atomically(self.path / "run.json", _json_text(run))

    def append_step(self, rank: int, facts: StepFacts) -> None:
        """One line for `steps-rank<rank>.jsonl`; on disk within a second or 64 lines."""
        log = self._logs.get(rank)
        if log is None:
            log = self._logs[rank] = StepLog(self.path / steps_file(rank))
        log.append(facts)

    def append_warning(self, rank: int, alarm: Any) -> None:
        """One line for `warnings-rank<rank>.jsonl`, at once: warnings are rare."""
        line = {**to_json(alarm), "sentence": alarm.sentence()}
        with (self.path / f"warnings-rank{rank}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def flush(self) -> None:
        for log in self._logs.values():
            log.flush()

    def close(self) -> None:
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    def write_incident(
        self,
        incident: Incident,
        save_tensors: Callable[[Path], None] | None = None,
        repro: str | None = None,
    ) -> Path:
        """The folder of the new incident, e.g. `…/incidents/0001`: visible whole, or not at all.

        `save_tensors(path)` writes the operands to `path` (a `tensors.safetensors`). Whatever it
        raises is passed on, after the half-written folder has been taken away.
        """
        incidents = self.path / "incidents"
        incidents.mkdir(parents=True, exist_ok=True)
        unfinished = incidents / f".writing-{uuid.uuid4().hex}"
        unfinished.mkdir()
        try:
            if save_tensors is not None:
                save_tensors(unfinished / TENSORS_FILE)
            if repro is not None:
                (unfinished / REPRO_FILE).write_bytes(repro.encode("utf-8", "backslashreplace"))
            (unfinished / INCIDENT_FILE).write_bytes(_json_text(incident))
            _settle(unfinished)
            return _claim_number(unfinished, incidents)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise

    def rewrite_incident(self, path: Path, incident: Incident) -> Path:
        """What is known by now of the incident in the folder `path`; the old text stays until then."""
        _write_atomically(path / INCIDENT_FILE, _json_text(incident))
        return path

    def incidents(self) -> list[Path]:
        return incident_folders(self.path)


def steps_file(rank: int) -> str:
    return f"steps-rank{rank}.jsonl"


def incident_folders(run_folder: Path) -> list[Path]:
    """The folders of all incidents in a run folder, oldest first."""
    try:
        found = [p for p in (run_folder / "incidents").iterdir() if p.name.isdigit()]
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda p: int(p.name))


def read_steps(path: Path) -> Iterator[StepFacts]:
    """The steps of a `steps-rank0.jsonl`; a torn last line (the run was killed) is passed over."""
    return step_log.read_steps(path)


def read_run(path: Path) -> Run:
    """The `run.json` at `path`, or in the folder `path`."""
    file = path / "run.json" if path.is_dir() else path
    return from_json(Run, json.loads(file.read_text(encoding="utf-8")))


def read_incident(path: Path) -> Incident:
    """The incident at `path`, its folder or its incident.json; UnreadableIncident says what is wrong."""
    file = path / INCIDENT_FILE if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise UnreadableIncident(say("read.no_incident", path=path)) from None
    except UnicodeDecodeError as error:
        raise UnreadableIncident(say("read.not_json", path=file, why=error.reason)) from None
    return _parse_incident(file, text)


def reason(error: OSError) -> str:
    """What the system said, without path or number: "No space left on device"."""
    return error.strerror or str(error) or type(error).__name__


def _parse_incident(file: Path, text: str) -> Incident:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise UnreadableIncident(say("read.not_json", path=file, why=error)) from None
    if isinstance(data, dict) and data.get("schema", SCHEMA) != SCHEMA:
        raise UnreadableIncident(say("read.wrong_schema", path=file, found=data["schema"], expected=SCHEMA))
    try:
        incident = from_json(Incident, data)
    except ValueError as error:
        raise UnreadableIncident(say("read.wrong_shape", path=file, why=error)) from None
    for field, known in (("kind", KINDS), ("phase", PHASES), ("action", ACTIONS)):
        found = getattr(incident, field)
        if found not in known:
            expected = ", ".join(known)
            raise UnreadableIncident(
                say("read.wrong_field", path=file, field=field, found=found, expected=expected)
            )
    return incident


def _new_folder(parent: Path, script_name: str) -> Path:
    """A folder below `parent` that nobody else has: `mkdir` decides, also between processes."""
    stem = re.sub(r"\.pyw?$", "", Path(script_name).name)
    readable = re.sub(r"[^\w.-]+", "-", stem).strip("-.")[:40] or "run"
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{readable}"
    parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1


def _keep_earlier_run(path: Path, rank: int) -> None:
    mine = [steps_file(rank)] + (["run.json"] if rank == 0 else [])
    earlier = [name for name in mine if (path / name).exists()]
    number = 1
    while any((path / _earlier_name(number, name)).exists() for name in mine):
        number += 1
    for name in earlier:
        try:
            os.rename(path / name, path / _earlier_name(number, name))
        except FileNotFoundError:
            pass  # another process was first


def _earlier_name(number: int, name: str) -> str:
    return f"run-{number}.json" if name == "run.json" else f"run-{number}-{name}"


def _claim_number(unfinished: Path, incidents: Path) -> Path:
    """Rename to the next free number. A rename onto a folder that has files in it fails, so two ranks
    cannot take the same number."""
    taken = [int(p.name) for p in incidents.iterdir() if p.name.isdigit()]
    number = max(taken, default=0) + 1
    while True:
        path = incidents / f"{number:04d}"
        try:
            os.rename(unfinished, path)
            return path
        except OSError:
            if not path.exists():
                raise
            number += 1


def _json_text(record: Run | Incident) -> bytes:
    text = json.dumps(to_json(record), indent=1, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8", "backslashreplace")


def _write_atomically(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(data)
        os.replace(unfinished, path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def _settle(folder: Path) -> None:
    """fsync each file: on a network file system a full disk is only told of here."""
    for file in folder.iterdir():
        descriptor = os.open(file, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
