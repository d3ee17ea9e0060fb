"""transformers' Trainer: `logging_nan_inf_filter`, on by default, leaves a bad loss out of the logged mean.

It serves scripts that use the Trainer, says nothing and stops nothing: a person can only read off an error
that the script dies of.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from bench.peers.said import Said, read_traceback

LABEL = "transformers Trainer's filter"
IMPORTS = ()


def applies(script: Path) -> bool:
    return bool(re.search(r"^from transformers import\b.*\bTrainer\b", script.read_text(), re.MULTILINE))


@contextlib.contextmanager
def watching(script: Path, folder: Path) -> Iterator[None]:
    yield


def read_off(output: str, folder: Path) -> Said:
    return read_traceback(output)
