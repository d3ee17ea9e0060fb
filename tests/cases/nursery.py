"""Runs Python programs in children of a process that has imported torch already: seconds saved per program.

    with Nursery() as nursery:
        done = nursery.run(["-m", "nanwatch", "run", "train.py"], cwd=folder)

The parent runs no torch code of its own, so a child begins as a fresh interpreter does, only sooner.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
from multiprocessing.util import _exit_function
from pathlib import Path
from typing import Any

LIMIT = 120


class Nursery:
    """The client's side: one server process, one program at a time."""

    def __enter__(self) -> Nursery:
        environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", NO_COLOR="1")
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(timeout=30)

    def run(self, arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
        assert self._server.stdin is not None and self._server.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            stdout, stderr = Path(folder, "stdout"), Path(folder, "stderr")
            request = {"arguments": arguments, "cwd": str(cwd), "stdout": str(stdout), "stderr": str(stderr)}
            print(json.dumps(request), file=self._server.stdin, flush=True)
            code = int(self._server.stdout.readline())
            return subprocess.CompletedProcess(arguments, code, stdout.read_text(), stderr.read_text())


def serve() -> None:
    import safetensors.torch  # noqa: F401
    import torch  # noqa: F401

    import nanwatch.adapters.plain
    import nanwatch.cli.main  # noqa: F401

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            become(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def become(request: dict[str, Any]) -> None:
    """In the child: be the program, then leave without returning to the server's loop."""
    import faulthandler

    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(request[name], os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    os.chdir(request["cwd"])
    code = 0
    try:
        be(request["arguments"])
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else int(done.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    _exit_function()
    os._exit(code)


def be(arguments: list[str]) -> None:
    if arguments[:2] == ["-m", "nanwatch"]:
        from nanwatch.cli.main import main

        sys.argv[:] = arguments[1:]
        main(arguments[2:])
    else:
        sys.argv[:] = arguments
        sys.path[0] = str(Path(arguments[0]).parent)
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    serve()
