"""The update made again with settings that its formula can take: an eps above 0, betas below 1, a rate that
an ordinary gradient survives."""

from __future__ import annotations

import math
from typing import Any

import torch

from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.state import optimizer_of
from nanwatch.explain.text import Text
from nanwatch.explain.twin import update_of

NAME = "usual-settings"
TITLE = Text("making the update again with usual settings", "用常用的超参数重做这次更新")
FINITE = Text("with {settings} the update is finite", "用 {settings} 时更新结果有限")
FAILS = Text("with {settings} the update fails too", "用 {settings} 时更新也失败")

LARGEST_RATE = 1e3
USUAL_RATE = 1e-3
HALVES = (torch.float16, torch.bfloat16)


def applies(case: Case) -> bool:
    about_the_update = case.phase == "optimizer" or case.trouble.seen_in == "hyperparameter"
    return about_the_update and bool(_changes(optimizer_of(case)))


def run(case: Case) -> Outcome:
    """`value`: the settings that were changed."""
    optimizer = optimizer_of(case)
    changes = _changes(optimizer)
    finite = update_of(optimizer, True, changes=changes)
    if not finite:  # the update that failed may have spoiled the state
        finite = update_of(optimizer, False, changes=changes)
    if finite is None:
        return Outcome(None, "")
    settings = ", ".join(f"{name}={value}" for name, value in changes.items())
    return Outcome(finite, (FINITE if finite else FAILS).say(settings=settings), changes)


def _changes(optimizer: Any) -> dict[str, Any]:
    if optimizer is None:
        return {}
    groups = optimizer.param_groups
    least = 1e-4 if any(p.dtype in HALVES for g in groups for p in g["params"]) else 1e-8
    return {name: value for group in groups for name, value in _changed(group, least).items()}


def _changed(group: dict[str, Any], least: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in group.items():
        if name == "eps":
            found[name] = _each(value, lambda v: max(v, least))
        elif name == "betas":
            found[name] = _each(value, lambda v: v if 0 <= v < 1 else 0.9)
        elif name == "lr":
            found[name] = _each(
                value, lambda v: v if math.isfinite(v) and abs(v) <= LARGEST_RATE else USUAL_RATE
            )
    return {name: value for name, value in found.items() if value != group[name]}


def _each(value: Any, change: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(change(v) if isinstance(v, (int, float)) else v for v in value)
    return change(value) if isinstance(value, (int, float)) else value
