"""torch.utils._debug_mode.DebugMode: a log of all ops, the norms of operands and results, and stack traces.

It keeps a log and judges nothing. What a person would do is done here: after the run, find the first op in
the log that has a non-finite result of finite operands, or NaN of operands without; an op with an infinity
written among its arguments (a mask) is passed over. It is printed with the lines before it.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.peers.said import FRAME, Said, read_traceback

LABEL = "torch `DebugMode`"
IMPORTS = ("torch.utils._debug_mode", "torch.distributed.tensor", "torch.distributed._tools.mod_tracker")
HEAD = "DebugMode's log, up to the first op that makes something non-finite:"
STACK = "stack trace of the last:"
OP = re.compile(r"^\s*(\w+)::([\w.]+)\(")
BEFORE = 12


def applies(script: Path) -> bool:
    return True


@contextlib.contextmanager
def watching(script: Path, folder: Path) -> Iterator[None]:
    from torch.utils._debug_mode import DebugMode

    mode = DebugMode(record_nn_module=True, record_stack_trace=True)
    try:
        with mode, DebugMode.log_tensor_hashes("norm", hash_inputs=True):
            yield
    finally:
        print(_up_to_the_first_bad(mode.operators))


def _up_to_the_first_bad(calls: list[Any]) -> str:
    for index, call in enumerate(calls):
        if _makes_non_finite(call):
            around = [
                c for c in calls[:index] if str(c).startswith("[nn.Mod") and c.call_depth < call.call_depth
            ]
            module = str(around[-1]) if around else "no module"
            forward = getattr(call, "fwd_stack_trace", None)
            stack = forward or getattr(call, "stack_trace", None) or ""
            lines = [str(c) for c in calls[max(0, index - BEFORE) : index + 1]]
            return "\n".join(
                [HEAD, *lines, f"{'backward' if forward else 'forward'} in {module}", STACK, stack]
            )
    return ""


def _makes_non_finite(call: Any) -> bool:
    log = getattr(call, "log", None) or {}
    taken, made = _norms(log.get("input_hash")), _norms(log.get("hash"))
    if any(map(math.isnan, made)):
        return not any(map(math.isnan, taken))
    written = str(call).partition("  ->  ")[0]
    return not all(map(math.isfinite, made)) and all(map(math.isfinite, taken)) and "inf" not in written


def _norms(logged: Any) -> list[float]:
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(logged) if isinstance(leaf, float)]


def read_off(output: str, folder: Path) -> Said:
    if HEAD not in output:
        return read_traceback(output)
    log, _, stack = output[output.index(HEAD) :].partition(STACK)
    *_, last, where = log.strip().splitlines()
    lines, op, module = FRAME.findall(stack), OP.match(last), re.search(r"\] ([\w.]+)", where)
    phase = "backward" if where.startswith("backward") else "forward" if module else "loss"
    return Said(
        detected=True,
        phase="optimizer" if "/torch/optim/" in stack and phase == "loss" else phase,
        op=f"{op[1]}.{op[2]}" if op else None,
        line=int(lines[-1]) if lines else None,
        module=module[1].partition(".")[2] if module else None,
        named_module=phase != "backward",
        words=last.strip()[:160],
    )
