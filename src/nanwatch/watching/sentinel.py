"""The verdict of a step: finite loss and finite gradients, or not.

Host mode reads one scalar per optimizer step. Device mode reads nothing: the verdict goes to the fused
optimizer as `found_inf`, so that a bad step is a no-op on the device; it latches, so that later steps are
no-ops too until the host, a step late, has seen it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nanwatch.tensors import is_finite, norm_and_verdict

LATE_STEPS = 2
"""How many steps the host may run ahead of the device before it waits for a verdict."""


@dataclass(frozen=True)
class Verdict:
    """`bad` is None when nothing is wrong, else what showed it: "loss" or "gradients"."""

    bad: str | None
    loss: float | None
    grad_norm: float | None


def gradients_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


class HostSentinel:
    """One scalar read per step."""

    def judge(
        self, loss: torch.Tensor | None, gradients: Sequence[torch.Tensor], norm: torch.Tensor | None
    ) -> Verdict:
        norms = [norm] if norm is not None else norm_and_verdict(gradients)
        loss_value, *norm_values = read_scalars(loss, *norms)
        norm_value = math.hypot(*(n for n in norm_values if n is not None)) if norm_values else None
        if loss_value is not None and not math.isfinite(loss_value):
            return Verdict("loss", loss_value, norm_value)
        if norm_value is not None and not math.isfinite(norm_value) and not _all_finite(gradients):
            return Verdict("gradients", loss_value, norm_value)
        return Verdict(None, loss_value, norm_value)


def total_norm(norms: Sequence[torch.Tensor]) -> torch.Tensor:
    """One norm out of one per device, on the first of the devices, without waiting for any."""
    if len(norms) == 1:
        return norms[0]
    if not norms:
        return torch.zeros(())
    return torch.linalg.vector_norm(torch.stack([n.to(norms[0].device, non_blocking=True) for n in norms]))


def _all_finite(gradients: Iterable[torch.Tensor]) -> bool:
    """The slow, exact answer, for when the norm of finite gradients overflowed."""
    return all(is_finite(g) for g in gradients)


def read_scalars(*values: torch.Tensor | None) -> list[float | None]:
    """The values on the host, with one wait for the device at most."""
    present = [v.detach().reshape(-1) for v in values if v is not None]
    if all(v.numel() == 1 for v in present) and all(v.device.type == "cpu" for v in present):
        return [None if v is None else _number(v) for v in values]
    sums = [v.to(torch.complex128 if v.is_complex() else torch.float64).sum().abs() if v.is_complex()
            else v.double().sum() for v in present]
    device = next((s.device for s in sums if s.device.type != "cpu"), torch.device("cpu"))
    read = iter(torch.stack([s.to(device) for s in sums]).tolist() if sums else [])
    return [None if v is None else next(read) for v in values]


def _number(value: torch.Tensor) -> float:
    item = value.detach().item()
    return abs(item) if isinstance(item, complex) and math.isfinite(abs(item)) else _real(item)


def _real(item: Any) -> float:
    return item.real + item.imag if isinstance(item, complex) else float(item)


@dataclass
class _Late:
    step: int
    values: torch.Tensor
    """On the host: bad before or now, loss, norm."""
    ready: Any


class DeviceSentinel:
    """No host sync: `guard` before a fused optimizer's step, `past` for the verdicts that have arrived."""

    def __init__(self) -> None:
        self._latched: dict[torch.device, torch.Tensor] = {}
        self._waiting: deque[_Late] = deque()

    def guard(
        self,
        optimizer: torch.optim.Optimizer,
        step: int,
        loss: torch.Tensor | None,
        gradients: Sequence[torch.Tensor],
        norm: torch.Tensor | None,
    ) -> None:
        """Give the optimizer this step's verdict, and send it to the host."""
        if norm is None:
            norm = total_norm(norm_and_verdict(gradients))
        device = norm.device
        loss = loss.detach().float().sum().to(device) if loss is not None else torch.zeros((), device=device)
        norm = norm.detach().float().reshape(())
        bad = 1.0 - torch.isfinite(loss + norm).float() if loss.numel() else torch.zeros((), device=device)
        latched = self._latched.get(device)
        if latched is None:
            latched = self._latched[device] = torch.zeros((), device=device)
        torch.maximum(latched, bad, out=latched)
        given = getattr(optimizer, "found_inf", None)
        optimizer.found_inf = latched if given is None else torch.maximum(latched, given.to(device))  # type: ignore[attr-defined]
        self._send(step, torch.stack([latched, loss, norm]))

    def _send(self, step: int, values: torch.Tensor) -> None:
        if values.device.type != "cuda":
            self._waiting.append(_Late(step, values.clone(), None))
            return
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        host.copy_(values, non_blocking=True)
        ready = torch.cuda.Event()
        ready.record()
        self._waiting.append(_Late(step, host, ready))

    def past(self, wait: bool = False) -> list[tuple[int, Verdict]]:
        """The verdicts that have arrived, oldest first. Waits only when too many are under way, or asked to."""
        arrived: list[tuple[int, Verdict]] = []
        while self._waiting:
            late = self._waiting[0]
            if late.ready is not None and not late.ready.query():
                if not wait and len(self._waiting) <= LATE_STEPS:
                    break
                late.ready.synchronize()
            elif late.ready is None and not wait and len(self._waiting) < LATE_STEPS:
                break
            self._waiting.popleft()
            bad, loss, norm = late.values.tolist()
            seen = None if not bad else ("loss" if not math.isfinite(loss) else "gradients")
            arrived.append((late.step, Verdict(seen, loss, norm)))
            if bad:
                break
        return arrived

    def clear(self) -> None:
        """The host has seen the latch: let steps through again, and forget those that were held back."""
        for latched in self._latched.values():
            latched.zero_()
        self._waiting.clear()


def supports_found_inf(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer leaves everything alone when `found_inf` is set."""
    groups = optimizer.param_groups
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False)) and all(g.get("fused") for g in groups)
