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
import warnings
from collections.abc import Callable
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


def in_children(work: Callable[..., Any], *arguments: Any, processes: int = 1) -> list[Any]:
    """What `work` returned (as JSON) in each child, None if it died. Several get torchrun's variables."""
    with tempfile.TemporaryDirectory() as folder:
        results = [Path(folder, f"{rank}.json") for rank in range(processes)]
        port = _free_port() if processes > 1 else 0
        children = []
        for rank, result in enumerate(results):
            sys.stdout.flush()
            sys.stderr.flush()
            child = os.fork()
            if child == 0:
                _become(work, arguments, result, rank, processes, port)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        return [json.loads(r.read_text()) if r.exists() else None for r in results]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _become(
    work: Callable[..., Any], arguments: tuple[Any, ...], result: Path, rank: int, processes: int, port: int
) -> None:
    """In the child: do the work, write down what it returned, and leave without going back."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        warnings.simplefilter("ignore")
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
    finally:
        _exit_function()  # the loader's workers end with it
        os._exit(0)
