"""The verdict of a step: finite loss and finite gradients, or not.

Host mode reads one scalar per optimizer step. Device mode reads nothing: the verdict goes to the fused
optimizer as `found_inf`, so that a bad step is a no-op on the device; it latches, so that later steps are
no-ops too until the host, a step late, has seen it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from nanwatch.tensors import is_finite, latch, norm_and_verdict, norms_by_device, numbers_and_norm

LATE_STEPS = 2
"""How many steps the host may run ahead of the device before it waits for a verdict."""


class Verdict(NamedTuple):
    """`bad` is None when nothing is wrong, else what showed it: "loss" or "gradients"."""

    bad: str | None
    loss: float | None
    grad_norm: float | None


def weights_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def gradients_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [g for group in optimizer.param_groups for p in group["params"] if (g := p.grad) is not None]


class HostSentinel:
    """One scalar read per step."""

    def judge(
        self,
        losses: Sequence[torch.Tensor],
        gradients: list[torch.Tensor],
        norm: torch.Tensor | None,
        confirm: bool = True,
    ) -> Verdict:
        """`losses`: one per backward since the last step (gradient accumulation). `confirm`: a norm that is
        not finite may only be too large; the gradients tell."""
        values = numbers_and_norm(losses, gradients) if norm is None else None
        if values is None:
            norms = [norm] if norm is not None else norms_by_device(gradients)
            values = read_scalars([*losses, *norms])
        loss_values, norm_values = values[: len(losses)], values[len(losses) :]
        loss_value = loss_values[-1] if loss_values else None
        norm_value = math.hypot(*norm_values) if norm_values else None
        if not all(map(math.isfinite, loss_values)):
            return Verdict("loss", loss_value, norm_value)
        too_large = norm_value is not None and not math.isfinite(norm_value)
        if too_large and not (confirm and _all_finite(gradients)):
            return Verdict("gradients", loss_value, norm_value)
        return Verdict(None, loss_value, norm_value)


def total_norm(norms: Sequence[torch.Tensor]) -> torch.Tensor:
    """One norm out of one per device, on the first of the devices, without waiting for any."""
    if len(norms) == 1:
        return norms[0]
    if not norms:
        return torch.zeros(())
    total: torch.Tensor = torch.linalg.vector_norm(torch.stack([n.to(norms[0].device) for n in norms]))
    return total


def _all_finite(gradients: Iterable[torch.Tensor]) -> bool:
    """The slow, exact answer, for when the norm of finite gradients overflowed."""
    return all(is_finite(g) for g in gradients)


def read_scalars(values: Sequence[torch.Tensor | float]) -> list[float]:
    """The values on the host, with one wait for the device at most. A value of many numbers is summed."""
    numbers: list[float] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            if not value.is_cpu:
                return _with_one_wait(values)
            value = value.item() if value.numel() == 1 else value.double().sum().item()
        numbers.append(value.real + value.imag if isinstance(value, complex) else float(value))
    return numbers


def _with_one_wait(values: Sequence[torch.Tensor | float]) -> list[float]:
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    sums = [torch.view_as_real(v).double().sum() if v.is_complex() else v.double().sum() for v in tensors]
    device = next(s.device for s in sums if s.device.type != "cpu")
    read = iter(torch.stack([s.to(device) for s in sums]).tolist())
    return [next(read) if isinstance(v, torch.Tensor) else v for v in values]


class _Mail(NamedTuple):
    """Host memory for what a device has kept, and the event that it has come, where it comes by itself."""

    values: torch.Tensor
    ready: Any


class _Late(NamedTuple):
    step: int
    mail: _Mail


class _Kept(NamedTuple):
    """On a device: bad before or now, loss, norm; and a view of the first."""

    values: torch.Tensor
    latched: torch.Tensor


class DeviceSentinel:
    """No host sync: `guard` before a fused optimizer's step, `past` for the verdicts that have arrived."""

    def __init__(self) -> None:
        self._kept: dict[torch.device, _Kept] = {}
        self._waiting: deque[_Late] = deque()
        self._read: list[_Mail] = []
        """What has been read and can be used again."""

    def guard(
        self,
        optimizer: torch.optim.Optimizer,
        step: int,
        losses: Sequence[torch.Tensor],
        gradients: list[torch.Tensor],
        norm: torch.Tensor | None,
        agree: Callable[[torch.Tensor], None] | None = None,
        hold_back: bool = True,
    ) -> None:
        """Give the optimizer this step's verdict, and send it to the host."""
        kept = self._at_once(losses, gradients) if norm is None else None
        if kept is None:
            kept = self._one_by_one(losses, gradients, norm)
        latched = kept.latched
        if agree is not None:
            agree(latched)
        given = getattr(optimizer, "found_inf", None)
        if hold_back:
            optimizer.found_inf = (  # type: ignore[attr-defined]
                latched if given is None else torch.maximum(latched, given.to(latched.device))
            )
        self._send(step, kept.values)

    def _at_once(self, losses: Sequence[torch.Tensor], gradients: list[torch.Tensor]) -> _Kept | None:
        """The usual case: one loss, and all gradients on one GPU."""
        if len(losses) != 1 or not gradients or not gradients[0].is_cuda:
            return None
        kept = self._kept_on(gradients[0].device)
        return kept if latch(gradients, losses[0], kept.values) else None

    def _one_by_one(
        self, losses: Sequence[torch.Tensor], gradients: list[torch.Tensor], norm: torch.Tensor | None
    ) -> _Kept:
        if norm is None:
            norm = total_norm(norm_and_verdict(gradients))
        device = norm.device
        norm = norm.detach().float().reshape(())
        parts = [_one_number(each).to(device, non_blocking=True) for each in losses]
        loss = sum(parts[1:], parts[0]) if parts else torch.zeros_like(norm)
        kept, both = self._kept_on(device), loss + norm
        torch.logical_or(kept.latched, both - both, out=kept.latched)  # finite less itself is 0, else NaN
        torch.stack([loss, norm], out=kept.values[1:])
        return kept

    def _kept_on(self, device: torch.device) -> _Kept:
        kept = self._kept.get(device)
        if kept is None:
            values = torch.zeros(3, dtype=torch.float32, device=device)
            kept = self._kept[device] = _Kept(values, values[0])
        return kept

    def _send(self, step: int, values: torch.Tensor) -> None:
        if values.device.type != "cuda":
            self._waiting.append(_Late(step, _Mail(values.clone(), None)))
            return
        if not self._read:
            self._read.append(_Mail(torch.empty(3, dtype=torch.float32, pin_memory=True), torch.cuda.Event()))
        mail = self._read.pop()
        mail.values.copy_(values, non_blocking=True)
        mail.ready.record()
        self._waiting.append(_Late(step, mail))

    def past(self, wait: bool = False, together: bool = False) -> list[tuple[int, Verdict]]:
        """The verdicts that have arrived, oldest first. Waits when too many are under way, or if asked.
        `together`: ranks that go together must all learn of a step in the same later one."""
        arrived: list[tuple[int, Verdict]] = []
        while self._waiting:
            step, mail = self._waiting[0]
            if (together or mail.ready is None) and not wait and len(self._waiting) < LATE_STEPS:
                break
            if mail.ready is not None and not mail.ready.query():
                if not wait and not together and len(self._waiting) <= LATE_STEPS:
                    break
                mail.ready.synchronize()
            self._waiting.popleft()
            bad, loss, norm = mail.values.tolist()
            if mail.ready is not None:
                self._read.append(mail)
            seen = None if not bad else ("loss" if not math.isfinite(loss) else "gradients")
            arrived.append((step, Verdict(seen, loss, norm)))
            if bad:
                break
        return arrived

    def clear(self) -> None:
        """The host has seen the latch: let steps through again, and forget those that were held back."""
        for kept in self._kept.values():
            kept.latched.zero_()
        self._waiting.clear()


def _one_number(loss: torch.Tensor) -> torch.Tensor:
    loss = loss.detach().float()
    return loss if loss.dim() == 0 else loss.sum()


def found_inf(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a GradScaler that leaves the unscaling to this optimizer has told it not to make the update."""
    given = getattr(optimizer, "found_inf", None)
    return isinstance(given, torch.Tensor) and given.numel() == 1 and bool(given)


def supports_found_inf(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer leaves everything alone when `found_inf` is set."""
    groups = optimizer.param_groups
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False)) and all(
        g.get("fused") for g in groups
    )
