"""Snapshots on disk: a folder each, whole or not there.

    <generation>-<number>-step<step>-rank<rank>/
        __0_0.distcp, .metadata    the tensors, as torch.distributed.checkpoint writes them, small ones packed
        state.json                 everything else
        manifest.json              sizes and checksums, written last; the second line is its own checksum

A snapshot is written under a temporary name, synced and renamed; one that is dropped is renamed first. So a
kill at any moment leaves the snapshots before it as they were.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

from torch import Tensor

from nanwatch.act.checkpoint_part import read_tensors, write_tensors
from nanwatch.act.packs import packed, unpacked
from nanwatch.act.training_state import State, Unfit
from nanwatch.errors import NanwatchError
from nanwatch.messages import say

try:
    import fcntl
except ImportError:  # not on Windows, where nobody is kept from sharing a folder
    fcntl = None  # type: ignore[assignment]

SCHEMA = 2
MANIFEST = "manifest.json"
PIECE = 2**18
"""Bytes read at a time: they stay in the cache."""
NAME = re.compile(r"(\d{19,}-\d{6,}-step-?\d+)-rank(\d+)")
_locked: set[tuple[int, Path]] = set()
"""Locks of this process: those of the system only keep other processes out."""


class OnDisk:
    """One rank's snapshots in a folder, which no other training may use meanwhile."""

    def __init__(self, folder: Path, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._folder = folder.resolve()
            self._mark = os.getpid(), self._folder / f"rank{rank}.lock"
            if self._mark in _locked:  # before it is opened: closing it would undo the lock
                raise NanwatchError(say("snapshot.folder_in_use", path=self._folder))
            self._lock = self._mark[1].open("w")
        except OSError as error:
            raise NanwatchError(say("snapshot.folder", path=folder, why=error.strerror)) from error
        self._claim()
        for left in self._folder.glob(f"*-rank{rank}.*"):
            if left.suffix in (".part", ".gone"):  # what a killed process left behind
                shutil.rmtree(left, ignore_errors=True)

    def ids(self) -> list[str]:
        """The snapshots there, the newest first."""
        return sorted(self._paths(), reverse=True)

    def put(self, id: str, state: State) -> dict[str, Tensor]:
        """Writes the snapshot and returns its host memory, which is free then."""
        final = self._folder / f"{id}-rank{self._rank}"
        part = final.with_name(final.name + ".part")
        try:
            part.mkdir(parents=True)
            tensors, packs = packed(state.tensors)
            places = write_tensors(part, tensors)
            content = {"step": state.step, "outline": state.outline, "tensors": places, "packs": packs}
            _write(part / "state.json", json.dumps(content))
            files = sorted(p for p in part.iterdir() if p.is_file())
            manifest = {
                "schema": SCHEMA,
                "id": id,
                "ranks": self._ranks,
                "objects": state.signature(),
                "files": {p.name: [p.stat().st_size, _checksum(p)] for p in files},
            }
            line = json.dumps(manifest)
            _write(part / MANIFEST, f"{line}\n{hashlib.sha256(line.encode()).hexdigest()}\n")
            _sync(part)
            part.rename(final)
            _sync(self._folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        return state.tensors

    def get(self, id: str) -> State:
        """The snapshot; raises Unfit when not every byte of it is as it was written."""
        path = self._paths()[id]
        manifest = _manifest(path)
        if manifest["ranks"] != self._ranks:
            raise Unfit(say("snapshot.other_ranks", found=manifest["ranks"], expected=self._ranks))
        for name, (size, checksum) in manifest["files"].items():
            file = path / name
            if not file.is_file():
                raise Unfit(say("snapshot.file_missing", file=name))
            if file.stat().st_size != size:
                raise Unfit(say("snapshot.file_size", file=name, found=file.stat().st_size, expected=size))
            if _checksum(file) != checksum:
                raise Unfit(say("snapshot.file_changed", file=name))
        content = json.loads((path / "state.json").read_text(encoding="utf-8"))
        tensors = unpacked(read_tensors(path, content["tensors"]), content["packs"])
        return State(content["step"], content["outline"], tensors)

    def drop(self, id: str) -> dict[str, Tensor]:
        path = self._paths().get(id)
        if path is not None:
            shutil.rmtree(path.rename(path.with_name(path.name + ".gone")), ignore_errors=True)
        return {}

    def is_of(self, id: str, signature: str) -> bool:
        """Whether a snapshot, of an earlier run perhaps, was taken of objects like these."""
        try:
            return bool(_manifest(self._paths()[id])["objects"] == signature)
        except (Unfit, OSError):
            return False

    def describe(self, id: str) -> str:
        return str(self._paths().get(id, id))

    def close(self) -> None:
        _locked.discard(self._mark)
        self._lock.close()

    def _paths(self) -> dict[str, Path]:
        found = {}
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            match = NAME.fullmatch(path.name)
            if match and int(match[2]) == self._rank:
                found[match[1]] = path
        return found

    def _claim(self) -> None:
        try:
            if fcntl is not None:
                fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            self._lock.close()
            raise NanwatchError(say("snapshot.folder_in_use", path=self._folder)) from None
        except OSError:
            pass  # a file system without locks
        _locked.add(self._mark)


def _manifest(path: Path) -> dict[str, Any]:
    try:
        line, checksum, _ = (path / MANIFEST).read_text(encoding="utf-8").split("\n")
    except OSError:
        raise Unfit(say("snapshot.file_missing", file=MANIFEST)) from None
    except ValueError:
        raise Unfit(say("snapshot.file_changed", file=MANIFEST)) from None
    if hashlib.sha256(line.encode()).hexdigest() != checksum:
        raise Unfit(say("snapshot.file_changed", file=MANIFEST))
    manifest: dict[str, Any] = json.loads(line)
    if manifest["schema"] != SCHEMA:
        raise Unfit(say("snapshot.other_schema", found=manifest["schema"], expected=SCHEMA))
    return manifest


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _checksum(path: Path) -> int:
    """Against damage, not against people: a quick one."""
    found = 0
    with path.open("rb", buffering=0) as file:
        piece = memoryview(bytearray(PIECE))
        while size := file.readinto(piece):
            found = zlib.crc32(piece[:size], found)
    return found


def _sync(folder: Path) -> None:
    """What was renamed in a folder is on the disk. Not every system lets a folder be opened for that."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
