"""Functions run in forked children of a process that has imported torch: as good as a new Python, and sooner.

The parent only imports; it runs no torch code, so that nothing of one child is there in the next.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import re
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.util import _exit_function
from pathlib import Path
from typing import Any

LIMIT = 120
HEAVY = ("transformers", "accelerate", "lightning", "torch._dynamo")


def import_what(script: Path) -> None:
    """Import here, once, the large packages that a script names: its children have them then."""
    text = script.read_text()
    for name in HEAVY:
        if name == "torch._dynamo" or re.search(rf"^\s*(import|from) {name}\b", text, re.MULTILINE):
            importlib.import_module(name)


@dataclass(frozen=True)
class Child:
    """How one child ended: what its work returned (None if it died), what it printed, its exit status."""

    result: Any
    output: str
    status: int

    @property
    def hung(self) -> bool:
        return self.result is None and "Timeout (" in self.output

    @property
    def death(self) -> str:
        if self.hung:  # the main thread's stack comes last, and its innermost frame first
            main = self.output.rpartition("(most recent call first):")[2].strip().splitlines()[0]
            return f"the process did not end within {LIMIT} s: {main.strip()[:150]}"
        last = self.output.strip().splitlines()[-1:] or ["it printed nothing"]
        return f"the process ended with status {self.status}: {last[0][:150]}"


def in_children(work: Callable[..., Any], *arguments: Any, processes: int = 1) -> list[Child]:
    """Do the work in children, each as if alone; several find the variables that torchrun sets."""
    with tempfile.TemporaryDirectory() as folder:
        results = [Path(folder, f"{rank}.json") for rank in range(processes)]
        port = _free_port() if processes > 1 else 0
        pids = []
        for rank, result in enumerate(results):
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
            if pid == 0:
                _become(work, arguments, result, rank, processes, port)
            pids.append(pid)
        ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        return [
            Child(
                json.loads(result.read_text()) if result.exists() else None,
                result.with_suffix(".output").read_text(errors="replace"),
                end,
            )
            for result, end in zip(results, ends, strict=True)
        ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _become(
    work: Callable[..., Any], arguments: tuple[Any, ...], result: Path, rank: int, processes: int, port: int
) -> None:
    """In the child: do the work, write down what it returned, and leave without going back."""
    try:
        output = os.open(result.with_suffix(".output"), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        for descriptor, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
            os.dup2(file, descriptor)
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        if processes > 1:
            os.environ.update(
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(processes),
                LOCAL_WORLD_SIZE=str(processes),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
            )
        part = result.with_suffix(".part")
        part.write_text(json.dumps(work(*arguments)))
        part.rename(result)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        _exit_function()  # the loader's workers end with it
        os._exit(0)
