"""Mixed precision used in the wrong order: a GradScaler's scale where it does not belong, or none."""

from __future__ import annotations

import torch

from nanwatch.explain.case import Case, runs_finite
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.history import usual_weights, weights_on
from nanwatch.explain.mechanism import DIVIDE_BY_ZERO
from nanwatch.explain.remedies import offer
from nanwatch.explain.state import update_to_blame
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.replay.again import Changes, run_again
from nanwatch.tensors import is_finite

PAGE = Page(
    title=Text("Mixed precision used in the wrong order", "混合精度使用顺序有误"),
    meaning=Text(
        "A GradScaler multiplies the loss so that small gradients survive in float16, finds out whether "
        "they overflowed, and then skips the update and lowers its scale. That only works if every step "
        "goes through it: scale, backward, unscale_, clip, scaler.step, scaler.update. A program that calls "
        "optimizer.step() itself lets the overflow through; one that clips before unscale_ clips the scaled "
        "gradients; a backward after unscale_ adds scaled gradients to unscaled ones which nobody checks; "
        "and without any scaler small gradients vanish in float16.",
        "GradScaler 先放大损失，使小梯度在 float16 中不会消失，再检查是否溢出；若溢出则跳过更新并降低缩放因"
        "子。只有每一步都经过它才有效：scale、backward、unscale_、裁剪、scaler.step、scaler.update。自己调用"
        " optimizer.step() 的程序会放过溢出；在 unscale_ 之前裁剪，裁剪的是放大后的梯度；在 unscale_ 之后再"
        "做 backward，会把放大的梯度加到已还原的梯度上而无人检查；完全不用 scaler，小梯度会在 float16 中变为"
        "零。",
    ),
    proof=Text(
        "The recorded order of calls. Where the scale made the overflow: the same step without the scale "
        "runs finite. Where no scaler was used: the gradients that are zero are not zero without float16.",
        "所记录的调用顺序。若溢出由缩放引起：同一步不加缩放时结果有限。若没有使用 scaler：那些为零的梯度在不"
        "用 float16 时并不为零。",
    ),
    cures=Text(
        "Once per update: scaler.scale(loss).backward() for every micro-batch, then "
        "scaler.unscale_(optimizer), then clip, then scaler.step(optimizer), then scaler.update(). Or use "
        "bfloat16, which needs no scaler.",
        "每次更新：对每个小批次调用 scaler.scale(loss).backward()，然后依次 scaler.unscale_(optimizer)、裁剪"
        "、scaler.step(optimizer)、scaler.update()。或者使用不需要 scaler 的 bfloat16。",
    ),
    examples=(
        "bwd_mixed_precision_loop",
        "bwd_clipped_mixed_precision",
        "bwd_accumulated_mixed_precision",
        "opt_layerwise_rates",
    ),
)

PAST = Text(
    "The loss was multiplied by a GradScaler's scale, and then the optimizer's own step() was called "
    "instead of scaler.step(), or after it: gradients that overflowed under the scale were not held back.",
    "损失已乘以 GradScaler 的缩放因子，但随后调用的是优化器自己的 step()，而不是 scaler.step()（或在它之"
    "后又调用）：在缩放下溢出的梯度没有被拦下。",
)
BACKWARD_AFTER = Text(
    "There was a backward after unscale_: its gradients carry the scale, are added to gradients that do "
    "not, and nobody checks them for overflow any more.",
    "在 unscale_ 之后又做了一次 backward：它的梯度带有缩放，被加到已还原的梯度上，而且不再有人检查溢出。",
)
CLIP_FIRST = Text(
    "The gradients were clipped before unscale_, while they still carried the GradScaler's scale.",
    "在 unscale_ 之前就裁剪了梯度，此时它们仍带有 GradScaler 的缩放。",
)
NO_SCALER = Text(
    "The forward ran under float16 autocast and the loss was not scaled: {zero} of {all} gradients are zero "
    "throughout, and are not zero when the same step runs in float32.",
    "前向在 float16 自动混合精度下运行，而损失没有缩放：{all} 个梯度中有 {zero} 个全为零；同一步用 float32 "
    "运行时它们并不为零。",
)
LOST = Text(
    "The forward ran under float16 autocast and the loss was not scaled: in one of the gradients "
    "{share:.0%} of the values that are not zero in float32 are zero.",
    "前向在 float16 自动混合精度下运行，而损失没有缩放：其中一个梯度里，用 float32 时不为零的值有 "
    "{share:.0%} 变成了零。",
)
MOST_LOST = 0.5
ORDER = Text("order of calls: {events}", "调用顺序：{events}")
FINITE = Text("without the scale the same step runs finite", "不加缩放时，同一步结果有限")
IN_ORDER = Text("the GradScaler's calls came in the right order", "GradScaler 的调用顺序正确")


def weigh(case: Case) -> Claim | Against | None:
    events = _since_the_last_update(case)
    if "scale" not in events and not _ever_scaled(case):
        return _without_scaler(case)
    wrong = _wrong_order(case, events)
    if wrong is None:
        return _earlier(case) or Against(IN_ORDER.say())
    return _claim(case, wrong, events)


def _claim(case: Case, wrong: Text, events: tuple[str, ...]) -> Claim | None:
    """The order is a fact; it is the cause for sure when the step is bad with the scale and not without."""
    order = ORDER.say(events=", ".join(events))
    if case.trouble.seen_in not in ("gradients", "weights", "exception"):
        return Claim("possible", wrong.say(), (order,), 4.0)
    if case.phase not in ("backward", "optimizer", "weights"):
        return Claim("possible", wrong.say(), (order,), 4.0)
    finite = runs_finite(run_again(case.tape, case.trouble.earlier, case.calls, True, Changes()))
    if finite is False:
        return Claim("possible", wrong.say(), (order,), 4.0)
    if finite and wrong is not CLIP_FIRST:
        return Claim("proved", wrong.say(), (order, FINITE.say()), 4.0)
    return Claim("likely", wrong.say(), (order,), 4.0)


def _since_the_last_update(case: Case) -> tuple[str, ...]:
    """The calls that led to this update. With several optimizers, all but the first of their updates come
    without a backward of their own."""
    events = case.events
    for facts in reversed(case.history):
        if "backward" in events or len(events) > 40:
            break
        events = (*(e for e in facts.events if e not in ("step", "update")), *events)
    return events


def _ever_scaled(case: Case) -> bool:
    return any("scale" in f.events for f in case.history)


def _wrong_order(case: Case, events: tuple[str, ...]) -> Text | None:
    if "scale" not in events:
        return None
    scaled = len(events) - 1 - events[::-1].index("scale")
    first_unscale = events.index("unscale") if "unscale" in events else None
    backwards = [i for i, e in enumerate(events) if e == "backward"]
    if first_unscale is not None and any(i > first_unscale for i in backwards):
        return BACKWARD_AFTER
    if "step" in events[scaled:] and _past_the_scaler(case, events):
        return PAST
    if "clip" in events and (first_unscale is None or events.index("clip") < first_unscale):
        return CLIP_FIRST
    return None


def _past_the_scaler(case: Case, events: tuple[str, ...]) -> bool:
    """Whether the optimizer's step was not the scaler's. A scaler that has checked bad gradients does not
    call it: if they got there, somebody else did."""
    if "scaler-skip" in events:
        since = events[len(events) - events[::-1].index("scaler-skip") :]
        return "step" in since and "scaler-step" not in since
    if "scaler-step" in events:
        return False
    if "unscale" not in events:
        return True
    return case.trouble.seen_in == "gradients" and case.phase == "backward"


def _earlier(case: Case) -> Claim | None:
    """Weights that are bad now: was the update that made them so made past the scaler?"""
    if case.phase != "weights" and case.trouble.seen_in != "weights":
        return None
    facts = next((f for f in reversed(case.history) if "step" in f.events), None)
    if facts is None or "scale" not in facts.events:
        return None
    after = "unscale" in facts.events and "backward" in facts.events[facts.events.index("unscale") :]
    past = "unscale" not in facts.events and "scaler-step" not in facts.events
    if not after and not past:
        return None
    order = ORDER.say(events=", ".join(facts.events))
    return Claim("likely", (BACKWARD_AFTER if after else PAST).say(), (order,), 4.0)


# No scaler


def _without_scaler(case: Case) -> Claim | None:
    """Gradients that vanished in float16 and were divided by."""
    if not _autocast_to_half(case) or case.phase not in ("optimizer", "backward", "weights"):
        return None
    if case.phase == "backward" and case.reproduced and case.mechanism.kind == "overflow":
        return None  # half-overflow's business: a scaler would only have skipped the step
    half = {id(p): (p, g) for p, g in _gradients(case, Changes())}
    full = {id(p): g for p, g in _gradients(case, Changes(autocast=False))}
    known = [(p, g, full[id(p)]) for p, g in half.values() if id(p) in full]
    vanished = [p for p, _, wide in known if _seen_zero(case, p) and bool(wide.any())]
    vanished = vanished or [p for p, g, wide in known if not bool(g.any()) and bool(wide.any())]
    if vanished:
        return Claim("proved", NO_SCALER.say(zero=len(vanished), all=len(half)), (), 4.0)
    lost = max((_lost(g, wide) for _, g, wide in known), default=0.0)
    divides = case.mechanism.kind == DIVIDE_BY_ZERO
    return Claim("likely", LOST.say(share=lost), (), 4.0) if lost > MOST_LOST and divides else None


def _seen_zero(case: Case, parameter: torch.Tensor) -> bool:
    """Whether the gradient that the update was given, and that is still there, is zero throughout."""
    return case.trouble.seen_in == "weights" and parameter.grad is not None and not bool(parameter.grad.any())


def _lost(half: torch.Tensor, full: torch.Tensor) -> float:
    """Of the values of a gradient that are not zero in float32: the share that is in float16."""
    there = full != 0
    return float((half[there] == 0).double().mean()) if bool(there.any()) else 0.0


def _autocast_to_half(case: Case) -> bool:
    tapes = (*case.trouble.earlier, case.tape)
    return any(
        on and dtype is torch.float16 for t in tapes for e in t.entries for _, on, dtype in e.context.autocast
    )


def _gradients(case: Case, changes: Changes) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of the step whose update went bad: this one, or the one before when only the next step showed it."""
    tape, earlier = case.tape, case.trouble.earlier
    update = update_to_blame(case)
    if case.trouble.seen_in != "weights" and update is not None:
        found = next((t for t in reversed(earlier) if t.step == update.step), None)
        if found is None:
            return []
        tape, earlier = found, tuple(t for t in earlier if t.step < found.step)
    with usual_weights(p for p in weights_on(tape) if not is_finite(p)):  # the update may have spoiled them
        again = run_again(tape, earlier, case.calls, False, changes)
    sums: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for parameter, gradient in again.gradients:
        had = sums.get(id(parameter))
        sums[id(parameter)] = (parameter, gradient if had is None else had[1] + gradient)
    return list(sums.values())


def remedies(case: Case) -> list[Remedy]:
    events = _since_the_last_update(case)
    if "scale" not in events and not _ever_scaled(case):
        return offer(case, "use-grad-scaler", "bfloat16", "full-precision")
    wrong = _wrong_order(case, events)
    if wrong is BACKWARD_AFTER or wrong is CLIP_FIRST:
        return offer(case, "unscale-before-clip", "step-through-scaler", "bfloat16")
    return offer(case, "step-through-scaler", "unscale-before-clip", "update-scaler", "bfloat16")
