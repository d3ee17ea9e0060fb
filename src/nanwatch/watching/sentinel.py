"""The verdict of a step: finite loss and finite gradients, or not.

Host mode reads one scalar per optimizer step. Device mode reads nothing: the verdict goes to the fused
optimizer as `found_inf`, so that a bad step is a no-op on the device; it latches, so that later steps are
no-ops too until the host, a step late, has seen it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, is_not
from typing import NamedTuple

import torch

from nanwatch.tensors import Answer, is_finite, latch, norm_and_verdict, norms_by_device, numbers_and_norm
from nanwatch.tensors.plain_dispatch import plain_dispatch
from nanwatch.watching.counted_on import CountedOn

PLAIN_VALUES = frozenset({torch.Tensor, torch.nn.Parameter, float})

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
    found = chain.from_iterable([map(_gradient_of, group["params"]) for group in optimizer.param_groups])
    return list(filter(_is_there, found))


_gradient_of = attrgetter("grad")
_is_there = partial(is_not, None)


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
        if values is not None and len(values) == 2 and math.isfinite(values[0]) and math.isfinite(values[1]):
            return Verdict(None, *values)  # mostly
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
    """The values on the host, with one wait for the device at most. A value of many numbers is summed; one on
    the meta device, which has none, is 0."""
    if any(isinstance(value, torch.Tensor) and value.is_meta for value in values):
        values = [0.0 if isinstance(v, torch.Tensor) and v.is_meta else v for v in values]
    if not PLAIN_VALUES.issuperset(map(type, values)):
        return _read(values)
    with plain_dispatch():  # a mode of the program may forbid to wait
        return _read(values)


def _read(values: Sequence[torch.Tensor | float]) -> list[float]:
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


class _Late(NamedTuple):
    step: int
    answer: Answer
    counted: CountedOn

    @property
    def is_bad(self) -> bool:
        """Once its answer is there."""
        return bool(self.answer.numbers[0])


class _Kept(NamedTuple):
    """On a device: bad before or now, loss, norm; and a view of the first."""

    values: torch.Tensor
    latched: torch.Tensor


class DeviceSentinel:
    """No host sync: `guard` before a fused optimizer's step, `past` for the verdicts that have arrived."""

    def __init__(self) -> None:
        self._kept: dict[torch.device, _Kept] = {}
        self._waiting: deque[_Late] = deque()
        self._counting = CountedOn()

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
        kept, answer = self._judged(losses, gradients, norm)
        if agree is not None:
            agree(kept.latched)
        self.step_is_over()
        counted = self._counting = CountedOn()
        if hold_back:
            given = getattr(optimizer, "found_inf", None)
            if given is kept.latched:  # of a step that did not come to its end
                given = None
            if given is None and (answer is not None or not _is_captured(kept.latched)):
                counted.begins(kept.latched)
            optimizer.found_inf = (  # type: ignore[attr-defined]
                kept.latched if given is None else torch.maximum(kept.latched, given.to(kept.latched.device))
            )
        if answer is None or agree is not None:
            answer = _sent(kept.values)
        self._waiting.append(_Late(step, answer, counted))

    def step_is_over(self) -> None:
        """That of the optimizer which was guarded last, whether it came to its end or not."""
        self._counting.ends()

    def settle(self) -> None:
        """Before somebody looks at what optimizers have counted: waits for the verdicts under way."""
        for late in self._waiting:
            if late.answer.ready is not None:
                late.answer.ready.synchronize()
            if late.is_bad:
                late.counted.count_back()

    def _judged(
        self, losses: Sequence[torch.Tensor], gradients: list[torch.Tensor], norm: torch.Tensor | None
    ) -> tuple[_Kept, Answer | None]:
        """Without an answer where what is kept must be sent first."""
        rows = gradients if norm is None else [norm]  # of which that is the norm
        loss = _sum_of(losses) if rows and rows[0].is_cuda else None
        if loss is not None:  # the usual case
            kept = self._kept_on(rows[0].device)
            answer = latch(rows, loss, kept.values)
            if answer is not None:
                return kept, answer
        return self._one_by_one(losses, gradients, norm), None

    def _one_by_one(
        self, losses: Sequence[torch.Tensor], gradients: list[torch.Tensor], norm: torch.Tensor | None
    ) -> _Kept:
        if norm is None:
            norm = total_norm(norm_and_verdict(gradients))
        device = norm.device
        norm = norm.detach().float().reshape(())
        sent = device.type != "cpu"  # else nobody would wait for what comes from a GPU
        parts = [_one_number(each).to(device, non_blocking=sent) for each in losses]
        loss = sum(parts[1:], parts[0]) if parts else torch.zeros_like(norm)
        kept, bad = self._kept_on(device), sum((each - each for each in parts), norm - norm)
        torch.logical_or(kept.latched, bad, out=kept.latched)  # finite less itself is 0, else NaN
        torch.stack([loss.float(), norm], out=kept.values[1:])
        return kept

    def _kept_on(self, device: torch.device) -> _Kept:
        kept = self._kept.get(device)
        if kept is None:
            values = torch.zeros(3, dtype=torch.float32, device=device)
            kept = self._kept[device] = _Kept(values, values[0])
        return kept

    def past(self, wait: bool = False, together: bool = False) -> list[tuple[int, Verdict]]:
        """The verdicts that have arrived, oldest first. Waits when too many are under way, or if asked.
        `together`: ranks that go together must all learn of a step in the same later one."""
        arrived: list[tuple[int, Verdict]] = []
        while self._waiting:
            step, (_, ready, numbers), counted = self._waiting[0]
            if (together or ready is None) and not wait and len(self._waiting) < LATE_STEPS:
                break
            if ready is not None and not ready.query():
                if not wait and not together and len(self._waiting) <= LATE_STEPS:
                    break
                ready.synchronize()
            self._waiting.popleft()
            bad, loss, norm = numbers
            seen = None if not bad else ("loss" if not math.isfinite(loss) else "gradients")
            arrived.append((step, Verdict(seen, loss, norm)))
            if bad:
                for held_back in (counted, *(late.counted for late in self._waiting)):
                    held_back.count_back()
                break
        return arrived

    def clear(self) -> None:
        """The host has seen the latch: let steps through again, and forget those that were held back."""
        for kept in self._kept.values():
            kept.latched.zero_()
        self._waiting.clear()


def _sent(values: torch.Tensor) -> Answer:
    if values.device.type != "cuda":
        return Answer.of(values.clone(), None)
    answer = Answer.of(torch.empty(3, dtype=torch.float32, pin_memory=True), torch.cuda.Event())
    answer.values.copy_(values, non_blocking=True)
    answer.ready.record()
    return answer


def _is_captured(verdict: torch.Tensor) -> bool:
    """Whether what is done now goes into a CUDA graph, and will be done again without us."""
    return verdict.is_cuda and torch.cuda.is_current_stream_capturing()


def _sum_of(losses: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Of the losses of micro-batches, which are alike; it is not finite unless all are."""
    if len(losses) == 1:
        return losses[0]
    if len({(type(loss), loss.dtype, loss.device, loss.shape) for loss in losses}) != 1:
        return None
    with plain_dispatch():
        return torch.stack(list(losses)).sum()


def _one_number(loss: torch.Tensor) -> torch.Tensor:
    loss = loss.detach() if loss.dtype is torch.float64 else loss.detach().float()
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
