"""No tool at all: the traceback of a script that dies of its bad value by itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bench.peers.said import Said, read_traceback

LABEL = "Python alone"
IMPORTS = ()


def applies(script: Path) -> bool:
    return True


@contextlib.contextmanager
def watching(script: Path, folder: Path) -> Iterator[None]:
    yield


def read_off(output: str, folder: Path) -> Said:
    return read_traceback(output)
