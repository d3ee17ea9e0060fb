"""A step with compiled code, once as eager code and once as it was compiled: which of the two fails?"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes
from nanwatch.replay.tracer import OpTracer
from nanwatch.watching.about_models import is_compiled

NAME = "eager"
TITLE = Text(
    "running the step as eager code, then as compiled code", "分别用即时模式和编译后的代码运行这一步"
)
DIFFER = Text(
    "finite as eager code, not finite again as compiled code", "即时模式下结果有限，编译后的代码再次不有限"
)
BOTH_FINITE = Text(
    "finite as eager code, and this time as compiled code too", "即时模式下结果有限，编译后的代码这次也有限"
)
ONLY_EAGER = Text("finite as eager code", "即时模式下结果有限")
BOTH_FAIL = Text("fails as eager code too", "即时模式下也失败")
LARGEST = 2**31
"""Bytes of weights and buffers that are copied, to be put back after compiled code has run."""


@dataclass(frozen=True)
class Modes:
    """Of a step that is finite as eager code."""

    compiled_fails: bool | None
    draws: bool
    """Random numbers are drawn in it: compiled code draws others."""


def applies(case: Case) -> bool:
    """Something was compiled in this program: a model, a part of one, or a function."""
    return bool(case.tape.entries) and (bool(compiled_calls(case)) or _frames_compiled() > 0)


def _frames_compiled() -> int:
    """How many pieces of code torch.compile has made in this process."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return 0 if utils is None else int(utils.counters["frames"]["ok"])


def compiled_calls(case: Case) -> list[str]:
    """What of the step is known to be compiled."""
    found = []
    for entry in case.tape.entries:
        if isinstance(entry.call, torch.nn.Module):
            if is_compiled(entry.call):
                found.append(type(getattr(entry.call, "_orig_mod", entry.call)).__name__)
        elif getattr(entry.call, "_torchdynamo_orig_callable", None) is not None:
            found.append(getattr(entry.call, "__name__", "?"))
    return list(dict.fromkeys(found))


def run(case: Case) -> Outcome:
    draws = _Draws()
    eager = runs_finite(case.rerun(Changes(around=draws.watched)))
    if eager is None:
        return Outcome(None, "")
    if not eager:
        return Outcome(False, BOTH_FAIL.say())
    compiled = _compiled(case)
    if compiled is None:
        return Outcome(True, ONLY_EAGER.say(), Modes(None, draws.seen))
    text = BOTH_FINITE if compiled else DIFFER
    return Outcome(True, text.say(), Modes(not compiled, draws.seen))


def _compiled(case: Case) -> bool | None:
    """Whether the step is finite with the compiled code; None when it cannot be run so."""
    tensors = [t for m in case.models for t in [*m.parameters(), *m.buffers()]]
    if sum(t.numel() * t.element_size() for t in tensors) > LARGEST:
        return None
    kept = [(t, t.detach().clone()) for t in tensors]
    try:
        return runs_finite(case.rerun(Changes(tracer=_Blind, around=_as_compiled)))
    finally:
        with torch.no_grad():
            for tensor, copy in kept:
                if not torch.equal(tensor, copy):
                    tensor.data.copy_(copy)


@contextlib.contextmanager
def _as_compiled() -> Iterator[None]:
    with torch.compiler.set_stance("default"):
        yield


class _Blind(OpTracer):
    """Not there: compiled code does not run under a mode."""

    def __enter__(self) -> _Blind:
        return self

    def __exit__(self, *_: Any) -> None:
        return None


class _Draws:
    """Notes whether torch's generator was drawn from."""

    def __init__(self) -> None:
        self.seen = False

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        before = torch.get_rng_state()
        yield
        self.seen = self.seen or not torch.equal(before, torch.get_rng_state())
