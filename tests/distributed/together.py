"""The same program on two ranks, as two processes that meet in a file. None may wait for ever."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from nursery import Done, Nursery
from workshop import environment

PROGRAMS = Path(__file__).parent / "programs"
RANKS = 2
LIMIT = 90
"""Seconds after which a run of torchrun hangs."""


class Together:
    """A folder for results, and ways to run a program on all ranks."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self.folder, self.nursery = folder, nursery
        self._runs = 0

    def python(self, program: str, *arguments: str, ranks: int = RANKS) -> list[Done]:
        return self._run([], program, *arguments, ranks=ranks)

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

    def _run(self, before: list[str], program: str, *arguments: str, ranks: int = RANKS) -> list[Done]:
        self._runs += 1
        command = [*before, str(PROGRAMS / program), *arguments]
        return self.nursery.run_ranks(command, self.folder, self.folder / f"meeting-{self._runs}", ranks)

    def incidents(self) -> list[dict[str, Any]]:
        files = sorted((self.folder / "run" / "incidents").glob("*/incident.json"))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def skipped_steps(self, rank: int) -> list[int]:
        lines = (self.folder / "run" / f"steps-rank{rank}.jsonl").read_text(encoding="utf-8").splitlines()
        return [step["step"] for step in map(json.loads, lines) if "skip" in step["events"]]

    def state(self, where: str, part: str, rank: int) -> Any:
        return torch.load(self.folder / where / f"{part}-{rank}.pt")
