"""torch.autograd.set_detect_anomaly: raises when a backward function returns NaN; shows the forward call."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from bench.peers.said import FRAME, Said, read_traceback

LABEL = "torch `detect_anomaly`"
IMPORTS = ()
ALARM = re.compile(r"Function '(\w+)' returned nan values in its \d+th output")
FORWARD = "Traceback of forward call that caused the error"


def applies(script: Path) -> bool:
    return True


@contextlib.contextmanager
def watching(script: Path, folder: Path) -> Iterator[None]:
    import torch

    with torch.autograd.set_detect_anomaly(True):
        yield


def read_off(output: str, folder: Path) -> Said:
    alarm = ALARM.search(output)
    if alarm is None:
        return read_traceback(output)
    start = output.find(FORWARD)
    end = output.find("Traceback (most recent call last)", start)
    lines = FRAME.findall(output[start:end]) if start >= 0 else []
    line = int(lines[-1]) if lines else None
    return Said(detected=True, phase="backward", node=alarm[1], line=line, words=alarm[0])
