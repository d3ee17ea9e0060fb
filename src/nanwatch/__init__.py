"""nanwatch ends NaN hunts.

nanwatch run train.py                 watch an unmodified script
nanwatch.watch(model, optimizer)      the same from code
with nanwatch.trace() as found: ...   which op made this NaN
nanwatch.LastGood(model, optimizer)   snapshots known to be finite, and the way back to the newest
nanwatch.stable                       safe building blocks to import
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nanwatch import stable as stable
    from nanwatch.act.checkpoint_gate import checkpoint_gate
    from nanwatch.act.clipping import clip_grad_norm_, clip_grad_value_
    from nanwatch.act.policy import Policy
    from nanwatch.act.snapshots import LastGood
    from nanwatch.act.stabilise import stabilise
    from nanwatch.adapters.plain import Session, watch
    from nanwatch.adapters.trace import Traced, trace
    from nanwatch.errors import NanwatchError, NonFiniteError
    from nanwatch.version import __version__

_WHERE = {
    "checkpoint_gate": "nanwatch.act.checkpoint_gate",
    "clip_grad_norm_": "nanwatch.act.clipping",
    "clip_grad_value_": "nanwatch.act.clipping",
    "LastGood": "nanwatch.act.snapshots",
    "stabilise": "nanwatch.act.stabilise",
    "Policy": "nanwatch.act.policy",
    "Session": "nanwatch.adapters.plain",
    "watch": "nanwatch.adapters.plain",
    "Traced": "nanwatch.adapters.trace",
    "trace": "nanwatch.adapters.trace",
    "NanwatchError": "nanwatch.errors",
    "NonFiniteError": "nanwatch.errors",
    "__version__": "nanwatch.version",
}

__all__ = [
    "LastGood",
    "NanwatchError",
    "NonFiniteError",
    "Policy",
    "Session",
    "Traced",
    "__version__",
    "checkpoint_gate",
    "clip_grad_norm_",
    "clip_grad_value_",
    "stabilise",
    "trace",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name == "stable":
        return importlib.import_module("nanwatch.stable")
    if name not in _WHERE:
        raise AttributeError(f"module 'nanwatch' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value
