"""The same program under `python` and under `nanwatch run`: as real processes, or in a nursery."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from nursery import Nursery

LIMIT = 60
Done = subprocess.CompletedProcess[str]


def environment(**more: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    fixed = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NO_COLOR": "1", "NANWATCH_LANG": "en"}
    return {**inherited, **fixed, **more}


class Workshop:
    """A folder with the test's files, and ways to run them.

    With a nursery, scripts and nanwatch run there, which is sooner; without one each starts Python."""

    def __init__(self, folder: Path, nursery: Nursery | None = None) -> None:
        self.folder, self.nursery = folder, nursery
        self.runs = folder.parent / "runs"

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def call(self, *command: str | Path, input: str | None = None, cwd: Path | None = None) -> Done:
        words = [str(word) for word in command]
        if self.nursery is not None and (words[0].endswith(".py") or words[:2] == ["-m", "nanwatch"]):
            return self.nursery.run(words, cwd or self.folder, input or "")
        return self.process(*words, input=input, cwd=cwd)

    def process(self, *command: str | Path, input: str | None = None, cwd: Path | None = None) -> Done:
        """Python itself."""
        return subprocess.run(
            [sys.executable, *map(str, command)],
            cwd=cwd or self.folder,
            env=environment(),
            input=input,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )

    def python(self, *command: str | Path, input: str | None = None) -> Done:
        return self.call(*command, input=input)

    def nanwatch(self, *command: str | Path, input: str | None = None) -> Done:
        return self.call("-m", "nanwatch", *command, input=input)

    def watched(self, *command: str | Path, input: str | None = None) -> Done:
        return self.nanwatch("run", "--dir", self.runs, *command, input=input)

    def start(self, *command: str | Path) -> subprocess.Popen[str]:
        """As from a terminal: what a shell runs in its background ignores Ctrl-C, and so do its children."""
        return subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def same(self, *command: str | Path, input: str | None = None) -> tuple[Done, Done]:
        """Run both ways; what is on stdout and the exit code must agree with Python's."""
        plain = self.process(*command, input=input)
        watched = self.watched(*command, input=input)
        assert watched.stdout == plain.stdout, watched.stderr
        assert watched.returncode == plain.returncode, watched.stderr
        return plain, watched
