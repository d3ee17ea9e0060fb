"""The step with the batch of an earlier step that is still on record."""

from __future__ import annotations

import torch

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite
from nanwatch.watching.tape import Entry, Tape, given_to, version_of

NAME = "another-batch"
TITLE = Text("running the step with an earlier batch", "用先前的批次重新运行这一步")
FINITE = Text("with the batch of step {step} it runs finite", "换成第 {step} 步的批次后结果有限")
STILL = Text("with the batch of step {step} it fails too", "换成第 {step} 步的批次后同样失败")


def applies(case: Case) -> bool:
    return bool(case.model_calls) and not case.in_own_code and _pairs(case)[1] is not None


def run(case: Case) -> Outcome:
    other, step = _pairs(case)
    finite = runs_finite(case.rerun(Changes(outside=lambda t: other.get(id(t), t))))
    if finite is None:
        return Outcome(None, "")
    return Outcome(finite, (FINITE if finite else STILL).say(step=step))


def _pairs(case: Case) -> tuple[dict[int, torch.Tensor], int | None]:
    """id of a tensor of this step's batch -> the tensor that was in its place in an earlier one."""
    for tape in reversed(case.trouble.earlier):
        other = _in_the_place_of(case.tape, tape)
        if other and all(is_finite(t) for t in other.values() if measurable(t)):
            return other, tape.step
    return {}, None


def _in_the_place_of(tape: Tape, earlier: Tape) -> dict[int, torch.Tensor]:
    mine, theirs = _reading(tape), _reading(earlier)
    if len(mine) != len(theirs):
        return {}
    found: dict[int, torch.Tensor] = {}
    for entry, other in zip(mine, theirs, strict=True):
        given, before = given_to(entry), given_to(other)
        if entry.kind != other.kind or len(given) != len(before):
            return {}
        versions = {id(t): v for t, v in other.versions}
        for tensor, was in zip(given, before, strict=True):
            if tensor is was or tensor.requires_grad or was.requires_grad or tensor.dim() == 0:
                continue
            if tensor.shape != was.shape or tensor.dtype != was.dtype:
                return {}
            value = _as_it_was(was, versions.get(id(was)), earlier)
            if value is None:
                return {}
            found[id(tensor)] = value
    return found


def _reading(tape: Tape) -> list[Entry]:
    """From the first call of a model on."""
    first = next((i for i, e in enumerate(tape.entries) if e.kind == "module"), len(tape.entries))
    last = next((i for i, e in enumerate(tape.entries) if e.kind == "backward"), len(tape.entries))
    return [e for e in tape.entries[first:last] if e.kind != "write"]


def _as_it_was(tensor: torch.Tensor, version: int | None, tape: Tape) -> torch.Tensor | None:
    """The tensor as it was when the call read it; None when that is lost."""
    if version is None or version_of(tensor) == version:
        return tensor
    return tape.saved.get((id(tensor), version))
