"""The list that people go through by hand when a loss turns NaN, answered from what is known of this step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from nanwatch.explain.case import Case
from nanwatch.explain.text import Text
from nanwatch.records import Cause, Check
from nanwatch.replay.samples import bad_rows_of_batch, batch_size
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite
from nanwatch.watching.tape import tensors_in

FINE, BAD, OPEN = "fine", "bad", "open"
HALVES = (torch.float16, torch.bfloat16)
RISES = 100.0
"""A gradient norm this many times the median of the run is a rise."""

DATA = Text("Is the data clean?", "数据是否干净？")
DATA_FINE = Text("Every value that the model was given is finite.", "模型得到的所有数值都是有限的。")
DATA_BAD = Text(
    "Rows {rows} of what the model was given are not finite.", "模型输入的第 {rows} 行含有 NaN 或 Inf。"
)
DATA_OPEN = Text("No call of a model is on record.", "没有记录到模型调用。")
RATE = Text("Does the learning rate suit the model?", "学习率是否合适？")
RATE_RISE = Text(
    "The gradient norm rose to {norm:.3g}, {times:.0f} times its median, at a rate of {rate:g}. Try "
    "{lower:g}.",
    "梯度范数升到 {norm:.3g}，是中位数的 {times:.0f} 倍；学习率为 {rate:g}。可试 {lower:g}。",
)
RATE_FINE = Text(
    "The gradient norm did not rise before this step; the rate is {rate:g}.",
    "此步之前梯度范数没有上升；学习率为 {rate:g}。",
)
RATE_OPEN = Text("No earlier step is on record.", "没有更早的步骤可供比较。")
CLIP = Text("Are gradients clipped, and after unscaling?", "是否裁剪梯度，且在还原缩放之后？")
CLIP_FINE = Text("Clipped in this step.", "这一步做了裁剪。")
CLIP_NONE = Text("Not clipped in this step.", "这一步没有裁剪梯度。")
CLIP_BAD = Text(
    "Clipped before the GradScaler's scale was divided out.", "在 GradScaler 还原缩放之前就做了裁剪。"
)
PRECISION = Text("Is the precision to blame?", "是否是精度的问题？")
PRECISION_FULL = Text("No half precision was in use.", "没有使用半精度。")
PRECISION_BAD = Text("The step runs finite in float32.", "这一步用 float32 运行结果有限。")
PRECISION_FINE = Text("The step fails in float32 too.", "这一步用 float32 运行也失败。")
PRECISION_OPEN = Text("Half precision was in use; not tried without.", "使用了半精度；未尝试不用它。")
OPERATION = Text("Is there an unstable operation?", "是否有数值不稳定的运算？")
OPERATION_BAD = Text("{op} at line {line}: {code}", "第 {line} 行的 {op}：{code}")
OPERATION_FINE = Text("No op made it: it was brought in.", "不是运算产生的：数值来自外部。")
BATCH = Text("Is the batch large enough?", "批大小是否足够？")
BATCH_BAD = Text(
    "The batch has one row and a BatchNorm needs two.", "批中只有一行，而 BatchNorm 至少需要两行。"
)
BATCH_FINE = Text("The batch has {rows} rows.", "批中有 {rows} 行。")
STATE = Text("Are weights, buffers and optimizer state finite?", "权重、缓冲区和优化器状态是否有限？")
STATE_FINE = Text("All {count} of them are.", "全部 {count} 个都有限。")
STATE_BAD = Text(
    "Not finite: {names}. Go back to a good checkpoint.", "含有 NaN 或 Inf：{names}。请回到完好的检查点。"
)


def checklist(case: Case, cause: Cause) -> tuple[Check, ...]:
    """Seven points. `cause`: what the diagnosis says, so that the two agree."""
    points: tuple[Callable[[Case, Cause], tuple[Text, str, str]], ...] = (
        _data,
        _rate,
        _clipping,
        _precision,
        _operation,
        _batch,
        _state,
    )
    return tuple(
        Check(question.say(), state, answer) for question, state, answer in _answers(points, case, cause)
    )


def _answers(
    points: tuple[Callable[[Case, Cause], tuple[Text, str, str]], ...], case: Case, cause: Cause
) -> Iterator[tuple[Text, str, str]]:
    for point in points:
        try:
            yield point(case, cause)
        except Exception:
            continue  # a point that cannot be looked at says nothing


def _data(case: Case, cause: Cause) -> tuple[Text, str, str]:
    if not case.model_calls:
        return DATA, OPEN, DATA_OPEN.say()
    rows = bad_rows_of_batch(case.tape)
    if rows or cause.id == "bad-input":
        return DATA, BAD, DATA_BAD.say(rows=", ".join(map(str, rows or case.located.birth.samples)))
    return DATA, FINE, DATA_FINE.say()


def _rate(case: Case, cause: Cause) -> tuple[Text, str, str]:
    norms = [n for f in case.history if isinstance(n := f.grad_norm, float) and math.isfinite(n)]
    rates = next((f.lr for f in reversed(case.history) if f.lr), (0.0,))
    if len(norms) < 3:
        return RATE, OPEN, RATE_OPEN.say()
    middle = sorted(norms)[len(norms) // 2]
    if cause.id == "divergence" or (middle > 0 and norms[-1] > RISES * middle):
        times = norms[-1] / middle if middle else float("inf")
        rate = max(rates)
        return RATE, BAD, RATE_RISE.say(norm=norms[-1], times=times, rate=rate, lower=rate / 10)
    return RATE, FINE, RATE_FINE.say(rate=max(rates))


def _clipping(case: Case, cause: Cause) -> tuple[Text, str, str]:
    events = case.events
    if "clip" not in events:
        return CLIP, OPEN, CLIP_NONE.say()
    scaled = "scale" in events
    late = scaled and ("unscale" not in events or events.index("unscale") > events.index("clip"))
    return (CLIP, BAD, CLIP_BAD.say()) if late else (CLIP, FINE, CLIP_FINE.say())


def _precision(case: Case, cause: Cause) -> tuple[Text, str, str]:
    autocast = any(enabled for e in case.tape.entries for _, enabled, _ in e.context.autocast)
    half = any(p.dtype in HALVES for m in case.models for p in m.parameters())
    if not autocast and not half:
        return PRECISION, FINE, PRECISION_FULL.say()
    done = {e.name for e in case.experiments}
    outcomes = [case.outcome(name).finite for name in ("float32", "autocast-off") if name in done]
    if True in outcomes or cause.id.startswith("half-"):
        return PRECISION, BAD, PRECISION_BAD.say()
    return (
        (PRECISION, FINE, PRECISION_FINE.say())
        if False in outcomes
        else (PRECISION, OPEN, PRECISION_OPEN.say())
    )


def _operation(case: Case, cause: Cause) -> tuple[Text, str, str]:
    birth = case.located.birth
    if birth.op is None:
        return OPERATION, FINE, OPERATION_FINE.say()
    return OPERATION, BAD, OPERATION_BAD.say(op=birth.op, line=birth.line or "?", code=birth.code)


def _batch(case: Case, cause: Cause) -> tuple[Text, str, str]:
    rows = batch_size(case.tape)
    if rows is None:
        return BATCH, OPEN, DATA_OPEN.say()
    norms = any(
        isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for r in case.models for m in r.modules()
    )
    if rows == 1 and norms and any(getattr(m, "training", False) for m in case.models):
        return BATCH, BAD, BATCH_BAD.say()
    return BATCH, FINE, BATCH_FINE.say(rows=rows)


def _state(case: Case, cause: Cause) -> tuple[Text, str, str]:
    named = [(n, t) for m in case.models for n, t in [*m.named_parameters(), *m.named_buffers()]]
    optimizer = case.trouble.optimizer
    if optimizer is not None:
        for index, state in enumerate(optimizer.state.values()):
            named += [(f"state {index}.{key}", t) for key, value in state.items() for t in tensors_in(value)]
    measured = [(n, t) for n, t in named if measurable(t)]
    bad = [n for n, t in measured if not is_finite(t)]
    if bad:
        return STATE, BAD, STATE_BAD.say(names=", ".join(bad[:5]))
    return STATE, FINE, STATE_FINE.say(count=len(measured))
