"""Weights or gradients grew until they overflowed: step by step, or pass by pass through a recurrence."""

from __future__ import annotations

from nanwatch.explain import mechanism
from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.history import Layer, Passes, Rise, jumped, layers_of, passes_of, rise_of, uphill_rate
from nanwatch.explain.remedies import offer
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.watching.stack import user_frame

PAGE = Page(
    title=Text("The training diverged", "训练发散"),
    meaning=Text(
        "Weights or gradients grew, each step a little further, until a value left the range of its dtype. "
        "The bad step is only where it ended: the cause lies in the steps before it. The usual reasons are "
        "a learning rate that is too high for this loss, missing gradient clipping, inputs or targets that "
        "are not scaled, a target that follows the model's own output, or an objective without a lower "
        "bound. In a recurrence, or in a deep network, the same growth happens within one step: the same "
        "weights are applied again and again, and each pass multiplies the value, or its gradient, by about "
        "the same factor.",
        "权重或梯度一步步增长，最终超出数据类型的表示范围。出错的那一步只是终点，原因在它之前的若干步。常见"
        "原因有：学习率相对于该损失过高、没有梯度裁剪、输入或目标未做归一化、目标随模型自身输出而变化，或者"
        "目标函数没有下界。在循环网络或很深的网络中，同样的增长会在一步之内发生：同一组权重被反复作用，每次"
        "都把数值或梯度放大差不多相同的倍数。",
    ),
    proof=Text(
        "The loss or the gradient norm of the recorded steps rises over several steps by orders of "
        "magnitude, and the same step, made again from weights of the usual size, rises with the program's "
        "rate and does not with a lower one. Within one step: the same operation with the same weights, "
        "many times over, with sizes that grow steadily.",
        "在已记录的各步中，损失或梯度范数连续多步上升若干个数量级；并且从正常大小的权重出发重做同一步时，用"
        "程序的学习率会再次上升，用更低的学习率则不会。在一步之内：同一操作用同一组权重执行多次，数值稳定地"
        "逐次增大。",
    ),
    cures=Text(
        "Lower the learning rate, or raise it slowly from a small one (warmup). Clip the gradients by their "
        "norm. Scale inputs and targets to about one. For a recurrence: clip, use gated cells, or start "
        "from an orthogonal matrix, and cut long sequences. Weights that have already grown do not come "
        "back: go back to a checkpoint from before the rise.",
        "降低学习率，或从很小的学习率逐步升高（预热）。按范数裁剪梯度。把输入和目标缩放到 1 左右。对循环网络"
        "：裁剪梯度、使用门控单元、用正交矩阵初始化，并截断过长的序列。已经变大的权重不会自己恢复：请回到上"
        "升开始之前的检查点。",
    ),
    examples=(
        "loss_house_prices",
        "loss_bootstrapped_values",
        "fwd_wasserstein_critic",
        "bwd_recurrence_explodes",
        "fwd_rnn_relu_explodes",
    ),
)

LOSS = Text("loss", "损失")
NORM = Text("gradient norm", "梯度范数")
ROSE = Text(
    "The {what} rose from {first:.3g} at step {since} to {last:.3g} over {steps} recorded steps, without a "
    "stop, and then a value overflowed.",
    "{what}从第 {since} 步的 {first:.3g} 起，在 {steps} 个记录的步骤内一路上升到 {last:.3g}，随后数值溢出。",
)
PASSES = Text(
    "Within this one step the same weights were applied {count} times, and what came out grew from "
    "{first:.3g} to {last:.3g}, about {factor:.3g} times with each pass.",
    "在这一步之内，同一组权重被作用了 {count} 次，输出从 {first:.3g} 增长到 {last:.3g}，每次约放大 "
    "{factor:.3g} 倍。",
)
JUMPED = Text(
    "The few updates that were made threw the loss from {first:.3g} to {last:.3g}, and then a value "
    "overflowed.",
    "仅有的几次更新就把损失从 {first:.3g} 推到 {last:.3g}，随后数值溢出。",
)
LOOP = Text(
    "Within this one step line {line} ran {count} times, and what came out grew from {first:.3g} to "
    "{last:.3g}, about {factor:.3g} times with each pass.",
    "在这一步之内，第 {line} 行运行了 {count} 次，输出从 {first:.3g} 增长到 {last:.3g}，每次约放大 "
    "{factor:.3g} 倍。",
)
DEPTH = Text(
    "Through {count} layers the values grew from {first:.3g} to {last:.3g}, about {factor:.3g} times with "
    "each.",
    "经过 {count} 层，数值从 {first:.3g} 增长到 {last:.3g}，每层约放大 {factor:.3g} 倍。",
)
LAYER = Text(
    "{name} has grown to {size:.3g} on average, {times:.3g} times the usual size of such weights",
    "{name} 的平均大小已增长到 {size:.3g}，是这类权重正常大小的 {times:.3g} 倍",
)
GREW = Text(
    "After {steps} steps the weights have grown all over: {name} to {size:.3g}, {times:.3g} times its usual "
    "size.",
    "{steps} 步之后权重已整体变大：{name} 达到 {size:.3g}，是正常大小的 {times:.3g} 倍。",
)
RATE = Text("learning rate {rate:.3g}", "学习率 {rate:.3g}")
CLIPPED = Text("gradients were not clipped", "没有裁剪梯度")
NO_RISE = Text(
    "loss and gradient norm of the recorded steps do not rise towards this one",
    "已记录各步的损失和梯度范数没有朝这一步上升",
)


def weigh(case: Case) -> Claim | Against | None:
    if case.trouble.seen_in == "hyperparameter" or uphill_rate(case) is not None:
        return None
    rise = rise_of(case.history)
    if rise is not None and (rise.clear or rise.sudden):
        return _step_by_step(case, rise)
    found = _pass_by_pass(case) or _at_once(case) or _after_a_jump(case)
    return found or (Against(NO_RISE.say()) if len(case.history) >= 3 else None)


def _step_by_step(case: Case, rise: Rise) -> Claim | None:
    """A rise is no proof yet: a loss may rise and the birth be something else, such as a log of zero."""
    grown = [layer for layer in layers_of(case) if layer.grown or layer.bad]
    overflows = case.mechanism.kind in mechanism.OVERFLOWS
    evidence = _evidence(case, grown)
    why = ROSE.say(
        what=(LOSS if rise.of_loss else NORM).say(),
        first=rise.first,
        since=rise.since,
        last=rise.last,
        steps=rise.steps,
    )
    large = rise.last > 1e6 or bool(grown)
    if not overflows or not large:
        return Claim("possible", why, evidence, 4.0) if rise.clear else None
    if case.outcome("lower-rate").finite:
        return Claim("proved", why, (*evidence, case.outcome("lower-rate").text), 4.0)
    unproved = case.outcome("lower-rate").finite is False  # lower rates do not help either
    if not grown and (unproved or case.mechanism.kind != mechanism.OVERFLOW):
        return None
    far = rise.climbs >= 4 and rise.orders >= 12  # nothing but its own updates takes a loss that far
    return Claim("likely" if grown or far else "possible", why, evidence, 4.0)


def _at_once(case: Case) -> Claim | None:
    """Too few steps for a rise, and yet the weights have grown all over: a rate that is far too high."""
    if case.mechanism.kind != mechanism.OVERFLOW or not 1 <= len(case.history) < 4:
        return None
    grown = [layer for layer in layers_of(case) if layer.grown]
    if not grown or not case.outcome("lower-rate").finite:
        return None
    why = GREW.say(name=grown[0].name, size=grown[0].size, times=grown[0].times, steps=len(case.history))
    return Claim("likely", why, (*_evidence(case, grown), case.outcome("lower-rate").text), 4.0)


def _after_a_jump(case: Case) -> Claim | None:
    """The few updates that were made threw the loss up by orders, and the weights with it."""
    if case.mechanism.kind not in mechanism.OVERFLOWS or not jumped(case):
        return None
    rise, layers = rise_of(case.history), layers_of(case)
    if rise is None or not case.outcome("lower-rate").finite:
        return None
    why = JUMPED.say(first=rise.first, last=rise.last)
    return Claim("likely", why, (*_evidence(case, layers[:2]), case.outcome("lower-rate").text), 4.0)


def _pass_by_pass(case: Case) -> Claim | None:
    if case.mechanism.kind not in mechanism.OVERFLOWS or case.phase not in ("forward", "loss", "backward"):
        return None
    passes = passes_of(case)
    if passes is None:
        return None
    narrow = case.birth is not None and case.birth.narrow
    if not (passes.far or (narrow and passes.orders >= 3)):
        return None
    text = (PASSES if passes.same_weights else LOOP) if passes.same_place else DEPTH
    frame = user_frame(passes.node.stack)
    why = text.say(
        count=len(passes.sizes),
        first=passes.sizes[0],
        last=passes.sizes[-1],
        factor=passes.factor,
        line="?" if frame is None else frame.line,
    )
    sure = passes.same_weights and not narrow and len(passes.sizes) >= 8
    return Claim("proved" if sure else "likely", why, _sizes(passes), 4.0)


def _sizes(passes: Passes) -> tuple[str, ...]:
    every = max(1, len(passes.sizes) // 6)
    return (" → ".join(f"{s:.2g}" for s in passes.sizes[::every]),)


def _evidence(case: Case, grown: list[Layer]) -> tuple[str, ...]:
    found = [LAYER.say(name=layer.name, size=layer.size, times=layer.times) for layer in grown[:2]]
    rates = next((f.lr for f in reversed(case.history) if f.lr), ())
    if rates:
        found.append(RATE.say(rate=max(rates)))
    if not any("clip" in f.events for f in case.history) and "clip" not in case.events:
        found.append(CLIPPED.say())
    return tuple(found)


def remedies(case: Case) -> list[Remedy]:
    within_one_step = _pass_by_pass(case) is not None
    if within_one_step and case.trouble.last_update is None:
        return offer(case, "tame-growth")  # before any update, its rate and its clipping had no say
    first = ("tame-growth",) if within_one_step else ()
    return offer(case, *first, "lower-learning-rate", "clip-gradients", "warmup", "roll-back", "adamw")
