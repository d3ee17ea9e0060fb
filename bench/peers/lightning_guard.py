"""What Lightning guards with: `Trainer(detect_anomaly=True)`, and its check of the loss before backward.

A script that makes a Trainer gets one with detect_anomaly. In every script Lightning's `check_finite_loss` is
asked about each loss that is handed to backward, which is where Lightning has the loss in its hands.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.peers import detect_anomaly
from bench.peers.said import Said, innermost_line, read_traceback

LABEL = "Lightning's guards"
IMPORTS = ("lightning.pytorch",)
ALARM = re.compile(r"ValueError: The loss returned in `training_step` is .*")


def applies(script: Path) -> bool:
    return True


@contextlib.contextmanager
def watching(script: Path, folder: Path) -> Iterator[None]:
    import torch
    from lightning.pytorch import Trainer
    from lightning.pytorch.loops.utilities import check_finite_loss
    from torch.utils._pytree import tree_leaves

    backward, make_trainer = torch.autograd.backward, Trainer.__init__

    def checked(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        for loss in tree_leaves(tensors):
            check_finite_loss(loss)
        return backward(tensors, *args, **kwargs)

    def with_detection(self: Any, *args: Any, **kwargs: Any) -> None:
        make_trainer(self, *args, **{**kwargs, "detect_anomaly": True})

    torch.autograd.backward, Trainer.__init__ = checked, with_detection
    try:
        yield
    finally:
        torch.autograd.backward, Trainer.__init__ = backward, make_trainer


def read_off(output: str, folder: Path) -> Said:
    if detect_anomaly.ALARM.search(output):
        return detect_anomaly.read_off(output, folder)
    alarm = ALARM.search(output)
    if alarm is None:
        return read_traceback(output)
    return Said(detected=True, phase="loss", line=innermost_line(output), words=alarm[0])
