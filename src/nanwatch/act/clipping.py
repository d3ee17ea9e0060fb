"""Gradient clipping that never spreads a NaN or an Inf.

torch divides every gradient by the norm of all of them: one bad value, and all are bad. Here nothing is
changed then: the step is lost anyway, and untouched gradients still show where the fault is. When all is
finite, torch's own function does the work. The norm is the verdict, so ranks that share a norm agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from types import GeneratorType
from typing import Any

import torch
from torch import Tensor

from nanwatch import arguments
from nanwatch.act.named_gradients import (
    Named,
    Optimizers,
    Parameters,
    measured,
    named_parameters,
    zero_instead,
)
from nanwatch.act.tensor_list import listed
from nanwatch.act.unscaling import unscale_once
from nanwatch.messages import say
from nanwatch.records import Numbers
from nanwatch.watching.following import nothing_clipped
from nanwatch.watching.shield import warn

Guilty = tuple[Numbers, ...]


@dataclass(frozen=True)
class ValuesClipped:
    """What `clip_grad_value_` found."""

    finite: bool
    guilty: Guilty = ()


@torch.no_grad()
def clip_grad_norm_(
    parameters: Parameters,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
    *,
    scaler: Any = None,
    optimizer: Optimizers = None,
    replace_nonfinite_by_zero: bool = False,
) -> Tensor:
    """`torch.nn.utils.clip_grad_norm_`, bit for bit when all is finite. With a bad gradient nothing is
    changed, and the norm is not finite.

    The tensor that is returned is torch's, with two attributes more: `finite`, and `guilty`, the numbers of
    the bad gradients under their names (give a module, or its `named_parameters()`). With a `scaler` the
    gradients of `optimizer` are unscaled first, unless they are already.
    """
    _check_limit("clip_grad_norm_", "max_norm", max_norm)
    named = named_parameters(parameters, optimizer)
    unscale_once(scaler, optimizer)
    tensors = [p for _, p in named]
    shows_all = _shows_all(float(norm_type), tensors)
    if shows_all or _are_finite(named, foreach):
        given: Any = (p for p in tensors) if isinstance(parameters, GeneratorType) else tensors
        try:
            return _with(torch.nn.utils.clip_grad_norm_(given, max_norm, norm_type, True, foreach), True)
        except RuntimeError:  # a norm that is not finite is told before anything is changed
            if math.isfinite(_total_norm(tensors, norm_type, foreach)):
                raise
        wide = _wide_norm(tensors, norm_type)
        if math.isfinite(wide):  # finite gradients, only their norm does not fit their dtype
            torch.nn.utils.clip_grads_with_norm_(tensors, max_norm, wide, foreach)
            return _with(wide, True)
        if _are_finite(named, foreach):
            _clip_in_proportion(tensors, max_norm, norm_type)
            return _with(wide, True)
    guilty = measured(named)
    if replace_nonfinite_by_zero:
        _replace(named, guilty)
        norm = torch.nn.utils.clip_grad_norm_(tensors, max_norm, norm_type, False, foreach)
        return _with(norm, True, guilty)
    if error_if_nonfinite:
        raise RuntimeError(say("clip.refused", tensors=_listed(guilty)))
    again = partial(torch.nn.utils.clip_grad_norm_, tensors, max_norm, norm_type, False, foreach)
    _say_nothing_done(guilty, scaler, nothing_clipped(tensors, False, again))
    norm = _total_norm(tensors, norm_type, foreach)
    return _with(norm if shows_all else norm * math.nan, False, guilty)


@torch.no_grad()
def clip_grad_value_(
    parameters: Parameters,
    clip_value: float,
    foreach: bool | None = None,
    *,
    scaler: Any = None,
    optimizer: Optimizers = None,
    replace_nonfinite_by_zero: bool = False,
) -> ValuesClipped:
    """`torch.nn.utils.clip_grad_value_`. torch makes an ordinary number of an Inf, and nobody learns of it;
    here nothing is changed when a gradient is bad. Costs one more look at the gradients."""
    _check_limit("clip_grad_value_", "clip_value", clip_value)
    named = named_parameters(parameters, optimizer)
    unscale_once(scaler, optimizer)
    tensors = [p for _, p in named]
    guilty: Guilty = ()
    if not _are_finite(named, foreach):
        guilty = measured(named)
        if not replace_nonfinite_by_zero:
            again = partial(torch.nn.utils.clip_grad_value_, tensors, clip_value, foreach)
            _say_nothing_done(guilty, scaler, nothing_clipped(tensors, True, again))
            return ValuesClipped(False, guilty)
        _replace(named, guilty)
    torch.nn.utils.clip_grad_value_(tensors, clip_value, foreach)
    return ValuesClipped(True, guilty)


def _check_limit(function: str, name: str, limit: Any) -> None:
    """A limit that is NaN makes every gradient NaN; one below 0 turns them round."""
    if not isinstance(limit, Tensor):
        arguments.number(f"nanwatch.{function}", name, limit)


def _gradients(tensors: list[Tensor]) -> list[Tensor]:
    return [p.grad for p in tensors if p.grad is not None]


def _are_sharded(tensors: list[Tensor]) -> bool:
    return any(hasattr(g, "device_mesh") for g in _gradients(tensors))


def _shows_all(norm_type: float, tensors: list[Tensor]) -> bool:
    """Whether such a norm is not finite wherever a gradient is not: not one that looks for the smallest or
    counts, nor a maximum over ranks, which may pass over NaN."""
    return 0 < norm_type < math.inf or (norm_type == math.inf and not _are_sharded(tensors))


def _total_norm(tensors: list[Tensor], norm_type: float, foreach: bool | None) -> Tensor:
    with torch._C.DisableTorchFunction():  # not the program's doing: a watcher must not record it
        return torch.nn.utils.get_total_norm(_gradients(tensors), norm_type, False, foreach)


def _are_finite(named: Named, foreach: bool | None) -> bool:
    """By a norm, so that ranks agree; a closer look is for what no norm can hold."""
    tensors = [p for _, p in named]
    if math.isfinite(_total_norm(tensors, 2.0, foreach)) or math.isfinite(_wide_norm(tensors, 2.0)):
        return True
    return not _are_sharded(tensors) and not measured(named)


def _wide_norm(tensors: list[Tensor], norm_type: float) -> Tensor:
    norms = []
    for g in _gradients(tensors):
        wide = torch.complex128 if g.is_complex() else torch.float64
        norms.append(torch.linalg.vector_norm(g, float(norm_type), dtype=wide))
    together = torch.stack([n.to(norms[0].device) for n in norms])
    norm: Tensor = torch.linalg.vector_norm(together, float(norm_type))
    return norm


def _clip_in_proportion(tensors: list[Tensor], max_norm: float, norm_type: float) -> None:
    """Gradients whose norm no dtype can hold: by its proportion to the largest of their values."""
    gradients = _gradients(tensors)
    largest = max(float(g.abs().max()) for g in gradients if g.numel())
    for gradient in gradients:
        gradient.div_(largest)
    share = max_norm / float(_wide_norm(tensors, norm_type))
    for gradient in gradients:
        gradient.mul_(share)


def _with(norm: Tensor, finite: bool, guilty: Guilty = ()) -> Tensor:
    norm.__dict__.update(finite=finite, guilty=guilty)
    return norm


def _replace(named: Named, guilty: Guilty) -> None:
    warn(say("clip.replaced", tensors=listed(guilty)))
    zero_instead(named)


def _listed(guilty: Guilty) -> str:
    return listed(guilty) if guilty else say("clip.elsewhere")


_said: set[str | None] = set()
"""The guilty of the last sentence: the same again is not repeated."""


def _say_nothing_done(guilty: Guilty, scaler: Any, watched: bool) -> None:
    """A scaler that is still looking for its scale overflows now and then, and skips the step itself."""
    names = {n.name for n in guilty}
    if scaler is None and names and names != _said:
        warn(say("clip.left_to_the_watch" if watched else "clip.nothing_done", tensors=listed(guilty)))
        _said.clear()
        _said.update(names)
