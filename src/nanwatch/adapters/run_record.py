"""What is written about a run and its incidents in one line each."""

from __future__ import annotations

import datetime
import os
import platform

import torch

from nanwatch.messages import say
from nanwatch.records import Incident, Run
from nanwatch.version import __version__


def describe_run(command: tuple[str, ...], policy: str) -> Run:
    versions = {"nanwatch": __version__, "torch": str(torch.__version__), "python": platform.python_version()}
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
    world = int(os.environ.get("WORLD_SIZE", "1"))
    return Run(command, now(), versions, devices_in_use(), world, policy)


def devices_in_use() -> tuple[str, ...]:
    """GPUs only where the program has begun to use them: to ask for their names is to begin, and after that
    its own processes could not be forked any more."""
    gpus = range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)
    return ("cpu", *map(torch.cuda.get_device_name, gpus))


def now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def sentence_of(incident: Incident, path: str | None) -> str:
    kind = "NaN" if incident.kind == "nan" else "Inf"
    birth = incident.birth
    if incident.kind == "bit":
        name = birth.outputs[0].name
        return say("watch.stopped_by_memory", name=name, step=incident.step, path=path or "-")
    if birth.op is None or birth.file is None:
        return say(
            "watch.stopped_unknown", kind=kind, step=incident.step, phase=incident.phase, path=path or "-"
        )
    return say(
        "watch.stopped",
        kind=kind,
        step=incident.step,
        op=birth.op,
        file=birth.file,
        line=birth.line,
        path=path or "-",
    )
