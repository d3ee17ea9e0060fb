"""The step again, with what the program's hooks saved for the backward coming back as it went in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite

NAME = "kept-as-saved"
TITLE = Text(
    "running the step with what is saved for the backward kept as it is",
    "让为反向传播保存的内容保持原样，重新运行这一步",
)
FINITE = Text(
    "runs finite when {count} saved tensor(s) that came back with other values come back as they went in",
    "有 {count} 个保存的张量取回时数值已变；让它们原样取回时结果有限",
)
FAILS = Text(
    "fails too when what is saved for the backward comes back as it went in",
    "为反向传播保存的内容原样取回时同样失败",
)
CLOSE = 1e-2
"""How far, relatively, what comes back may lie from what went in: it may have been kept in half precision."""


def applies(case: Case) -> bool:
    saves = any(entry.context.saving is not None for entry in case.tape.entries)
    return saves and case.phase == "backward"


def run(case: Case) -> Outcome:
    """`value`: how many came back as something else, though finite."""
    others: list[torch.Tensor] = []

    def saving(pack: Callable[..., Any], unpack: Callable[..., Any]) -> tuple[Any, Any]:
        def keep(tensor: torch.Tensor) -> Any:
            return pack(tensor), tensor.detach().clone()

        def give(kept: Any) -> torch.Tensor:
            came_back: torch.Tensor = unpack(kept[0])
            if _is_another(kept[1], came_back):
                others.append(came_back)
            return kept[1]  # type: ignore[no-any-return]

        return keep, give

    finite = runs_finite(case.rerun(Changes(saving=saving)))
    if finite is None or not others:
        return Outcome(None, "")
    return Outcome(finite, (FINITE if finite else FAILS).say(count=len(others)), len(others))


def _is_another(was: torch.Tensor, now: torch.Tensor) -> bool:
    if not measurable(was) or not measurable(now) or was.shape != now.shape:
        return False
    if not is_finite(was) or not is_finite(now):
        return False
    return not torch.allclose(was, now.to(was.dtype), rtol=CLOSE, atol=CLOSE * float(was.abs().max()))
