"""The same program on two ranks, as two real processes that meet in a file. None may wait for ever."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from workshop import environment

PROGRAMS = Path(__file__).parent / "programs"
RANKS = 2
LIMIT = 90
"""Seconds after which a run hangs."""


@dataclass
class Done:
    """What one rank came to."""

    code: int
    out: str
    err: str


class Together:
    """A folder for results, and ways to run a program on all ranks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runs = 0

    def python(self, program: str, *arguments: str) -> list[Done]:
        return self._run([], program, *arguments)

    def nanwatch(self, *options: str, program: str, arguments: tuple[str, ...] = ()) -> list[Done]:
        watched = ["-m", "nanwatch", "run", "--dir", str(self.folder / "run"), *options]
        return self._run(watched, program, *arguments)

    def torchrun(self, *options: str, program: str) -> subprocess.CompletedProcess[str]:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
        watched = ["-m", "nanwatch", "run", "--dir", str(self.folder / "run"), *options]
        command = [sys.executable, *launcher, *watched, str(PROGRAMS / program)]
        return subprocess.run(
            command, cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=LIMIT
        )

    def _run(self, before: list[str], program: str, *arguments: str) -> list[Done]:
        self._runs += 1
        meeting = self.folder / f"meeting-{self._runs}"
        command = [sys.executable, *before, str(PROGRAMS / program), *arguments]
        ranks = [
            subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment(
                    RANK=str(rank),
                    LOCAL_RANK=str(rank),
                    WORLD_SIZE=str(RANKS),
                    LOCAL_WORLD_SIZE=str(RANKS),
                    MASTER_ADDR="localhost",
                    MASTER_PORT="0",
                    MEETING=str(meeting),
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]
        return _ends_of(ranks)

    def incidents(self) -> list[dict[str, Any]]:
        files = sorted((self.folder / "run" / "incidents").glob("*/incident.json"))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def skipped_steps(self, rank: int) -> list[int]:
        lines = (self.folder / "run" / f"steps-rank{rank}.jsonl").read_text(encoding="utf-8").splitlines()
        return [step["step"] for step in map(json.loads, lines) if "skip" in step["events"]]

    def state(self, where: str, part: str, rank: int) -> Any:
        return torch.load(self.folder / where / f"{part}-{rank}.pt")


def _ends_of(ranks: list[subprocess.Popen[str]]) -> list[Done]:
    """Every rank's end, or a failure when one of them hangs."""
    ends, until = [], time.monotonic() + LIMIT
    try:
        for process in ranks:
            out, err = process.communicate(timeout=max(1.0, until - time.monotonic()))
            ends.append(Done(process.returncode, out, err))
    except subprocess.TimeoutExpired:
        raise AssertionError(
            "a rank hangs: " + "\n".join(_last_words(process) for process in ranks)
        ) from None
    finally:
        for process in ranks:
            process.kill()
    return ends


def _last_words(process: subprocess.Popen[str]) -> str:
    process.kill()
    out, err = process.communicate()
    return f"exit {process.returncode}\n{out[-2000:]}\n{err[-2000:]}"
