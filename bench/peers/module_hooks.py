"""An isfinite check on the output of every module, as many write it: a global forward hook that raises."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.peers.said import Said, innermost_line, read_traceback

LABEL = "`isfinite` hook on each module"
IMPORTS = ()
ALARM = re.compile(r"FloatingPointError: output of module '(.*)' \((\w+)\) is not finite")


def applies(script: Path) -> bool:
    return True


@contextlib.contextmanager
def watching(script: Path, folder: Path) -> Iterator[None]:
    import torch
    from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
    from torch.utils._pytree import tree_leaves

    stack: list[torch.nn.Module] = []
    names: dict[torch.nn.Module, str] = {}

    @torch.compiler.disable
    def enter(module: torch.nn.Module, args: Any) -> None:
        if not stack:
            names.update((m, name) for name, m in module.named_modules())
        stack.append(module)

    @torch.compiler.disable
    def check(module: torch.nn.Module, args: Any, output: Any) -> None:
        stack.pop()
        for leaf in tree_leaves(output):
            if isinstance(leaf, torch.Tensor) and not torch.isfinite(leaf).all():
                kind = type(module).__name__
                raise FloatingPointError(
                    f"output of module {names.get(module, '?')!r} ({kind}) is not finite"
                )

    handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(check)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def read_off(output: str, folder: Path) -> Said:
    alarm = ALARM.search(output)
    if alarm is None:
        return read_traceback(output)
    loss = alarm[2].endswith("Loss")
    return Said(
        detected=True,
        phase="loss" if loss else "forward",
        line=innermost_line(output),
        module=alarm[1],
        named_module=True,
        words=alarm[0],
    )
