"""The step again on the CPU: a fault of a device, or of a kernel of that device, is not there."""

from __future__ import annotations

import torch

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes
from nanwatch.replay.on_cpu_instead import OnCpu, held_on_cpu

NAME = "on-cpu"
TITLE = Text("running the step on the CPU", "在 CPU 上运行这一步")
FINITE = Text("runs finite on the CPU", "在 CPU 上结果有限")
FAILS = Text("fails on the CPU too", "在 CPU 上也失败")
LARGEST = 2**32
"""Bytes of weights and buffers that are brought over."""


def applies(case: Case) -> bool:
    tensors = _state(case)
    size = sum(t.numel() * t.element_size() for t in tensors)
    return any(t.device.type not in ("cpu", "meta") for t in tensors) and size <= LARGEST


def run(case: Case) -> Outcome:
    with held_on_cpu(_state(case), torch.Tensor.cpu):
        finite = runs_finite(case.rerun(Changes(around=OnCpu, outside=torch.Tensor.cpu)))
    if finite is None:
        return Outcome(None, "")
    return Outcome(finite, (FINITE if finite else FAILS).say())


def _state(case: Case) -> list[torch.Tensor]:
    found = [t for m in case.models for t in [*m.parameters(), *m.buffers()]]
    return list({id(t): t for t in found if type(t) in (torch.Tensor, torch.nn.Parameter)}.values())
