"""Runs Python programs in children of a process that has imported torch already: seconds saved per program.

    with Nursery() as nursery:
        done = nursery.run(["-m", "nanwatch", "run", "train.py"], cwd=folder)

The parent runs no torch code of its own, so a child begins as a fresh interpreter does, only sooner. It has
torch._dynamo too, which every program imports that makes an optimizer.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LIMIT = 120
Done = subprocess.CompletedProcess[str]


class Nursery:
    """The client's side: one server process; the programs that were started run side by side."""

    def __enter__(self) -> Nursery:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
        fixed = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NO_COLOR": "1", "NANWATCH_LANG": "en"}
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment | fixed,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(timeout=30)

    def run(self, arguments: list[str], cwd: Path, input: str = "", **environment: str) -> Done:
        return self.start(arguments, cwd, input, **environment).end()

    def start(self, arguments: list[str], cwd: Path, input: str = "", **environment: str) -> Child:
        folder = tempfile.TemporaryDirectory()
        Path(folder.name, "stdin").write_text(input)
        request = {"arguments": arguments, "cwd": str(cwd), "folder": folder.name, "environment": environment}
        return Child(self, arguments, folder, self.ask(request))

    def run_ranks(self, arguments: list[str], cwd: Path, meeting: Path, ranks: int = 2) -> list[Done]:
        """A program on several ranks, with what torchrun sets. They meet in a file; none waits for ever."""
        shared = {
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": "0",
            "MEETING": str(meeting),
        }
        children = [
            self.start(arguments, cwd, RANK=str(rank), LOCAL_RANK=str(rank), **shared)
            for rank in range(ranks)
        ]
        ends = [child.end() for child in children]
        for end in ends:
            assert "Timeout (" not in end.stderr, f"a rank hangs: {end.stdout[-2000:]}\n{end.stderr[-4000:]}"
        return ends

    def ask(self, request: Mapping[str, Any]) -> int:
        assert self._server.stdin is not None and self._server.stdout is not None
        print(json.dumps(request), file=self._server.stdin, flush=True)
        return int(self._server.stdout.readline())


class Child:
    """A program that was started."""

    def __init__(
        self, nursery: Nursery, arguments: list[str], folder: tempfile.TemporaryDirectory[str], pid: int
    ) -> None:
        self.nursery, self.arguments, self.folder, self.pid = nursery, arguments, folder, pid

    def end(self) -> Done:
        """Waits for it. One that does not end within LIMIT seconds says where it is, and ends."""
        code = self.nursery.ask({"wait": self.pid})
        with self.folder:
            out, err = (Path(self.folder.name, name).read_text() for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess(self.arguments, code, out, err)


def serve() -> None:
    import safetensors.torch  # noqa: F401
    import torch._dynamo  # noqa: F401

    import nanwatch.adapters.plain
    import nanwatch.cli.main  # noqa: F401

    gc.collect()
    gc.freeze()  # what was imported is no garbage: no child looks through it
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        child = os.fork()
        if child == 0:
            become(request)
        print(child, flush=True)


def become(request: dict[str, Any]) -> None:
    """In the child: be the program, then leave without returning to the server's loop."""
    import faulthandler

    kinds = {"stdin": os.O_RDONLY, **dict.fromkeys(("stdout", "stderr"), os.O_CREAT | os.O_WRONLY)}
    for descriptor, (name, how) in enumerate(kinds.items()):
        os.dup2(os.open(os.path.join(request["folder"], name), how, 0o600), descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (the server's has read ahead)
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # to be asked for anew
    os.chdir(request["cwd"])
    code: object = 0
    try:
        be(request["arguments"])
    except SystemExit as done:
        code = done.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    leave(code)


def be(arguments: list[str]) -> None:
    if arguments[:2] == ["-m", "nanwatch"]:
        from nanwatch.cli.main import main

        sys.argv[:], sys.path[0] = arguments[1:], os.getcwd()
        main(arguments[2:])
    else:
        sys.argv[:] = arguments
        sys.path[0] = str(Path(arguments[0]).parent)
        runpy.run_path(arguments[0], run_name="__main__")


def leave(code: object) -> None:
    """As Python ends: it says what it was given, waits for threads, then for what was registered."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    serve()
