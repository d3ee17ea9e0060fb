"""transformers' DebugUnderflowOverflow: looks at weights, inputs and outputs of each module, prints, raises.

It wants the model when it is made; here each root module gets one at its first call.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.peers.said import Said, innermost_line, read_traceback

LABEL = "transformers `DebugUnderflowOverflow`"
IMPORTS = ("transformers.debug_utils",)
ALARM = "DebugUnderflowOverflow: inf/nan detected, aborting"
FRAMES = re.compile(r"^ {17} (\S*) (\w+)$", re.MULTILINE)
"""The head of a module's frame in its report: name and class."""
HAS = re.compile(r"^(\w+)(?:\[\d+\])* has (?:nans|infs)$", re.MULTILINE)


def applies(script: Path) -> bool:
    return True


@contextlib.contextmanager
def watching(script: Path, folder: Path) -> Iterator[None]:
    import torch
    from torch.nn.modules.module import register_module_forward_pre_hook
    from transformers.debug_utils import DebugUnderflowOverflow

    known: set[int] = set()

    @torch.compiler.disable
    def attach(module: torch.nn.Module, args: Any) -> None:
        if id(module) not in known:
            known.update(id(m) for m in module.modules())
            DebugUnderflowOverflow(module)

    handle = register_module_forward_pre_hook(attach)
    try:
        yield
    finally:
        handle.remove()


def read_off(output: str, folder: Path) -> Said:
    if ALARM not in output:
        return read_traceback(output)
    bad = set(HAS.findall(output))
    frames = FRAMES.findall(output[: output.index(ALARM)])
    name, kind = frames[-1] if frames else ("", "")
    phase = "loss" if kind.endswith("Loss") else "forward"
    if bad - {"input", "output"}:
        phase = "weights"
    elif "input" in bad and len(FRAMES.findall(_last_batch(output))) <= 1:
        phase = "data"
    return Said(
        detected=True,
        phase=phase,
        line=innermost_line(output),
        module=name,
        named_module=True,
        words=f"{ALARM}: {name} {kind}: {', '.join(sorted(bad))} not finite",
    )


def _last_batch(output: str) -> str:
    """Its frames since the model was called last."""
    return output[output.rfind("*** Starting batch number") :]
