"""Remedies that are no edit of the source: a setting, a guard around the step, a way back.

Each names the experiment that tries it, where one can: its outcome is what `verified` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from nanwatch.explain.experiments.bfloat16 import computes_in_float16
from nanwatch.explain.samples import batch_of
from nanwatch.explain.state import bad_weights
from nanwatch.explain.text import Text
from nanwatch.explain.written_under_tasks import written_under_a_task
from nanwatch.replay.samples import batch_size
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite

if TYPE_CHECKING:
    from nanwatch.explain.case import Case


@dataclass(frozen=True)
class Setting:
    text: Text
    experiments: tuple[str, ...] = ()
    """Any of these that ran finite verifies it."""
    fits: Callable[[Case], bool] | None = None
    """Whether it makes sense for this step; always, unless said."""


def _some_rows_are_bad(case: Case) -> bool:
    """Without all of them nothing would be left."""
    rows, size = case.located.birth.samples, batch_size(case.tape)
    return bool(rows) and (size is None or len(rows) < size)


def _data_is_bad(case: Case) -> bool:
    return any(measurable(t) and not is_finite(t) for _, t in batch_of(case))


def _data_is_out_of_range(case: Case) -> bool:
    return not _data_is_bad(case) and _some_rows_are_bad(case)


def _is_not_of_the_text(case: Case) -> bool:
    """Not where the program's own text put the number into the weight itself: nothing was loaded, or left
    unwritten. That the step is finite with another number proves no more than that the number matters."""
    op = case.located.op
    if case.phase != "weights" or op is None or not any(o.from_python for o in op.bad_inputs):
        return True
    own = {held.key for held in bad_weights(case)}
    return not any(o.key in own for o in op.bad_outputs)


def _was_good_before(case: Case) -> bool:
    """Whether there may be an earlier state without the damage."""
    record = case.trouble.fingerprints
    bad_at_first = set() if record is None else record.bad_at_first
    return _is_not_of_the_text(case) or not any(h.name in bad_at_first for h in bad_weights(case))


def _classifies(case: Case) -> bool:
    """Whether the loss is a cross entropy, which can smooth its labels."""
    calls = [e.call for tape in (case.tape, *case.trouble.earlier) for e in tape.entries]
    modules = [m for call in calls if isinstance(call, torch.nn.Module) for m in call.modules()]
    named = any(getattr(call, "__name__", "") == "cross_entropy" for call in calls)
    return named or any(isinstance(m, torch.nn.CrossEntropyLoss) for m in modules)


def _rate_is_a_number(case: Case) -> bool:
    return math.isfinite(rate_of(case))


def _is_not_adamw(case: Case) -> bool:
    return not isinstance(case.trouble.optimizer, torch.optim.AdamW)


def _eps_is_small(case: Case) -> bool:
    """Of an update, whether its eps is what the usual settings change, and not its rate or its betas."""
    changed = case.outcome("usual-settings").value
    return changed is None or "eps" in changed


def _clips_or_unscales(case: Case) -> bool:
    return "clip" in case.events or "unscale" in case.events


SETTINGS: dict[str, Setting] = {
    "lower-learning-rate": Setting(
        Text(
            "Lower the learning rate from {lr} to {lower}; if it fails again, to {lowest}.",
            "将学习率从 {lr} 降到 {lower}；若仍失败，再降到 {lowest}。",
        ),
        ("lower-rate",),
        _rate_is_a_number,
    ),
    "clip-gradients": Setting(
        Text(
            "Clip the gradients before each step: torch.nn.utils.clip_grad_norm_(model.parameters(), "
            "{clip:g}), or {less:g} if that is not enough.",
            "在每次更新前裁剪梯度：torch.nn.utils.clip_grad_norm_(model.parameters(), {clip:g})，"
            "不够时用 {less:g}。",
        ),
        ("clipping",),
    ),
    "warmup": Setting(
        Text(
            "Raise the learning rate over the first steps and let it fall as a cosine: "
            "SequentialLR(LinearLR(start_factor=0.01), CosineAnnealingLR).",
            "使用预热加余弦退火：SequentialLR(LinearLR(start_factor=0.01), CosineAnnealingLR)。",
        )
    ),
    "tame-growth": Setting(
        Text(
            "Keep each pass from growing the values: a norm between the layers, residual branches scaled by "
            "1/sqrt(depth), an orthogonal recurrent matrix, smaller initial weights, or fewer passes.",
            "不要让每一次传递都放大数值：层间加归一化、残差分支乘以 1/sqrt(depth)、正交的循环矩阵、"
            "更小的初始权重，或减少传递次数。",
        )
    ),
    "adamw": Setting(
        Text(
            "Use AdamW (lr={adamw:g}, weight_decay=0.01), which keeps weights from growing without end.",
            "改用 AdamW（lr={adamw:g}，weight_decay=0.01），避免权重无限增大。",
        ),
        ("adamw",),
        _is_not_adamw,
    ),
    "label-smoothing": Setting(
        Text(
            "Smooth the labels: cross_entropy(..., label_smoothing=0.1) keeps logits from growing "
            "without end.",
            "使用标签平滑：cross_entropy(..., label_smoothing=0.1)，避免 logits 无限增大。",
        ),
        fits=_classifies,
    ),
    "larger-eps": Setting(
        Text(
            "Use an eps that the dtype can hold: {eps} for {dtype}.",
            "使用该精度能表示的 eps：{dtype} 用 {eps}。",
        ),
        ("larger-eps", "usual-settings"),
        _eps_is_small,
    ),
    "full-precision": Setting(
        Text(
            "Run this module in float32 (under autocast: torch.autocast(device, enabled=False) around it, "
            "with .float() inputs).",
            "让这个模块用 float32 运行（在 autocast 下：用 torch.autocast(device, enabled=False) 包住它，"
            "输入 .float()）。",
        ),
        ("float32", "autocast-off"),
    ),
    "bfloat16": Setting(
        Text(
            "Use bfloat16 instead of float16: it has the range of float32.",
            "用 bfloat16 代替 float16：它的数值范围与 float32 相同。",
        ),
        ("bfloat16",),
        computes_in_float16,
    ),
    "use-grad-scaler": Setting(
        Text(
            "Scale the loss: scaler = torch.amp.GradScaler(); scaler.scale(loss).backward(); "
            "scaler.step(optimizer); scaler.update().",
            "使用损失缩放：scaler = torch.amp.GradScaler()；scaler.scale(loss).backward()；"
            "scaler.step(optimizer)；scaler.update()。",
        )
    ),
    "unscale-before-clip": Setting(
        Text(
            "Call scaler.unscale_(optimizer) before clipping: else the scaled gradients are clipped.",
            "裁剪前先调用 scaler.unscale_(optimizer)，否则裁剪的是放大后的梯度。",
        ),
        ("unscaled",),
        _clips_or_unscales,
    ),
    "step-through-scaler": Setting(
        Text(
            "Call scaler.step(optimizer), not optimizer.step(): the scaler divides its scale out and "
            "skips bad steps.",
            "调用 scaler.step(optimizer) 而不是 optimizer.step()：由 scaler 还原梯度并跳过坏的更新。",
        ),
        ("unscaled",),
    ),
    "update-scaler": Setting(
        Text(
            "Call scaler.update() after every scaler.step(): else the scale never falls after an overflow.",
            "每次 scaler.step() 之后调用 scaler.update()，否则溢出后缩放系数不会下降。",
        )
    ),
    "larger-batch": Setting(
        Text(
            "Use a batch of at least 2 (drop_last=True for the last one): one sample has no variance.",
            "批大小至少为 2（最后一批用 drop_last=True）：单个样本没有方差。",
        ),
        ("row-twice",),
    ),
    "drop-bad-rows": Setting(
        Text(
            "Leave these rows out of the batch: {rows}.",
            "从这一批中去掉这些行：{rows}。",
        ),
        ("rows-dropped",),
        _some_rows_are_bad,
    ),
    "skip-batch": Setting(
        Text(
            'Skip this batch: nanwatch run --policy skip, or nanwatch.watch(policy="skip").',
            '跳过这一批：nanwatch run --policy skip，或 nanwatch.watch(policy="skip")。',
        ),
        ("another-batch",),
    ),
    "clean-data": Setting(
        Text(
            "Check every sample before training (torch.isfinite(x).all()) and mend or remove the bad ones.",
            "训练前检查每个样本（torch.isfinite(x).all()），修正或删除有问题的样本。",
        ),
        ("rows-dropped",),
        _data_is_bad,
    ),
    "check-range": Setting(
        Text(
            "Check every sample before training against the range of the rest (x.abs().max()), and mend or "
            "remove those that are far out of it.",
            "训练前检查每个样本是否在其余数据的范围之内（x.abs().max()），修正或删除远超范围的样本。",
        ),
        ("rows-dropped",),
        _data_is_out_of_range,
    ),
    "check-index": Setting(
        Text(
            "Check ids, labels and indices against the size of their table where the batch is made.",
            "在构造批次处检查 id、标签和索引是否在表的范围之内。",
        ),
        ("valid-indices",),
    ),
    "check-loading": Setting(
        Text(
            "Load the weights again from a file that is whole, and look at what load_state_dict returns: "
            "missing and "
            "unexpected keys.",
            "重新从完好的文件加载权重，并检查 load_state_dict 返回的 missing keys 和 unexpected keys。",
        ),
        ("last-good-weights",),
        _is_not_of_the_text,
    ),
    "initialise": Setting(
        Text(
            "Write every value before it is read: torch.zeros instead of torch.empty, reset_parameters() "
            "after "
            "to_empty(), all keys in the state dict.",
            "读取之前先写入：用 torch.zeros 代替 torch.empty，to_empty() 之后调用 reset_parameters()，"
            "state dict 含有全部键。",
        ),
        ("poisoned-memory", "poisoned-update", "last-good-weights"),
        _is_not_of_the_text,
    ),
    "reset-optimizer-state": Setting(
        Text(
            "Make the optimizer anew, or clear its state (optimizer.state.clear()): its moments are bad.",
            "重新创建优化器，或清空其状态（optimizer.state.clear()）：其中的动量已经损坏。",
        ),
        ("fresh-optimizer-state",),
    ),
    "reset-running-stats": Setting(
        Text(
            "Reset the running statistics: module.reset_running_stats(), then some steps in training mode.",
            "重置运行统计量：module.reset_running_stats()，然后以训练模式运行若干步。",
        ),
        ("fresh-statistics",),
    ),
    "roll-back": Setting(
        Text(
            "Go back to the last good checkpoint: weights, moments and statistics, all of them.",
            "回到最近一个完好的检查点：权重、动量和统计量都要恢复。",
        ),
        ("last-good-weights",),
        _was_good_before,
    ),
    "synchronise-copy": Setting(
        Text(
            "Wait for the copy before reading it: non_blocking=False, or stream.synchronize() or an event.",
            "读取之前等待拷贝完成：non_blocking=False，或使用 stream.synchronize() 或 event。",
        ),
        ("synchronous-copies",),
    ),
    "one-worker-or-lock": Setting(
        Text(
            "Let one thread write at a time: one worker, or a lock around writing and reading.",
            "同一时间只让一个线程写：单个 worker，或在读写处加锁。",
        ),
        ("one-worker", "in-turn"),
    ),
    "await-task": Setting(
        Text(
            "Wait for the task (future.result()) before its memory is written again, or give it a copy.",
            "再次写入任务所用的内存之前，先等待任务完成（future.result()），或交给它一份拷贝。",
        ),
        fits=lambda case: written_under_a_task(case) is not None,
    ),
    "own-buffer": Setting(
        Text(
            "Give each tensor that is saved for the backward memory of its own until the backward has read "
            "it: more buffers, or no hooks.",
            "让为反向传播保存的每个张量在被读取之前独占内存：增加缓冲区，或不用钩子。",
        ),
        ("kept-as-saved",),
    ),
    "refresh-copy": Setting(
        Text(
            "Make the copy again after each update of the original, or use the original itself.",
            "每次更新原张量后重新生成副本，或直接使用原张量。",
        )
    ),
    "run-eager": Setting(
        Text(
            "Run this part in eager mode (torch.compiler.disable) until the compiler is mended.",
            "在编译器修复之前，让这一部分以 eager 模式运行（torch.compiler.disable）。",
        ),
        ("eager",),
    ),
    "check-hardware": Setting(
        Text(
            "Look at the machine: ECC errors (nvidia-smi -q -d ECC), temperature, memory; try another "
            "device.",
            "检查机器：ECC 错误（nvidia-smi -q -d ECC）、温度、内存；换一台设备试试。",
        )
    ),
    "fix-hyperparameter": Setting(
        Text(
            "Set the value to one that the formula can take: eps of {eps} or more, a finite rate "
            "above 0, betas below 1, a temperature above 0.",
            "把该值改为公式允许的值：eps 不小于 {eps}，学习率有限且大于 0，beta 小于 1，温度大于 0。",
        ),
        ("usual-settings", "larger-eps"),
    ),
    "stay-in-domain": Setting(
        Text(
            "Give the function only what it has a value for: abs() or relu() before a power, clamp() before "
            "a root, a log or an acos.",
            "只给函数有定义的值：求幂之前用 abs() 或 relu()，开方、取对数、acos 之前用 clamp()。",
        ),
        ("in-domain",),
    ),
    "clamp-scores": Setting(
        Text(
            "Bound what goes into this op: scores before a softmax, for instance, to [-10, 10], scaled by "
            "head_dim ** -0.5.",
            "限制进入这个运算的数值：例如 softmax 之前的分数限制在 [-10, 10]，并乘以 head_dim ** -0.5。",
        ),
        ("operand-bounded",),
    ),
    "finite-mask": Setting(
        Text(
            "Fill masks with torch.finfo(scores.dtype).min and combine them as booleans, not by adding.",
            "用 torch.finfo(scores.dtype).min 填充掩码，并以布尔运算合并，而不是相加。",
        ),
        ("fill-values",),
    ),
    "keep-target": Setting(
        Text(
            "Check the target against what the loss can give it: it must have some probability (not "
            "masked out, not "
            "longer than the input).",
            "检查目标是否在损失的定义域内：其概率不能为零（未被掩掉，且不长于输入）。",
        ),
        ("rows-dropped",),
    ),
}


EARLY, EARLY_RATES = 3, (1e-5, 5e-6)
LATE, LATE_RATES = 20, (5e-5, 1e-5)
"""What has helped, for optimizers of Adam's kind, when the numbers went bad up to this epoch."""
MOST_ROWS = 8


def text_of(case: Case, setting: Setting) -> str:
    """The sentence with the values of this run."""
    rate = rate_of(case)
    lower, lowest = lower_rates(case, rate)
    clip = case.outcome("clipping").value or 1.0 if "clipping" in setting.experiments else 1.0
    shown = next((numbers.dtype for numbers in case.located.birth.outputs), "float32")
    dtype = str(case.birth.dtype if case.birth is not None and case.birth.dtype is not None else shown)
    rows = case.located.birth.samples
    return setting.text.say(
        lr=f"{rate:g}",
        lower=f"{lower:g}",
        lowest=f"{lowest:g}",
        clip=clip,
        less=clip / 2,
        adamw=min(rate, 1e-3) if math.isfinite(rate) else 1e-3,
        eps=_eps(case),
        dtype=dtype.removeprefix("torch."),
        rows=", ".join(map(str, rows[:MOST_ROWS])) + (" …" if len(rows) > MOST_ROWS else ""),
    )


def _eps(case: Case) -> str:
    """The one that was tried, where one was."""
    if "larger-eps" in case.tried and case.outcome("larger-eps").finite:
        return f"{case.outcome('larger-eps').value:g}"
    narrow = case.birth is not None and case.birth.narrow
    return "1e-4" if narrow else "1e-8"


def rate_of(case: Case) -> float:
    """The largest learning rate of the step."""
    rates = next((facts.lr for facts in reversed(case.history) if facts.lr), ())
    optimizer = case.trouble.optimizer
    if optimizer is not None:
        rates = tuple(float(g.get("lr", 0.0)) for g in optimizer.param_groups)
    return max(rates, default=1e-3)


def lower_rates(case: Case, rate: float) -> tuple[float, float]:
    """The rate to try, and the one after it: what the experiment found, else by how long the run went well,
    else a tenth and a hundredth."""
    found = case.outcome("lower-rate").value if "lower-rate" in case.tried else None
    if found is not None and found.lower is not None:
        return found.lower, found.lower / 10
    epoch = case.trouble.epoch
    adam = "adam" in type(case.trouble.optimizer).__name__.lower()
    if epoch is not None and adam and epoch <= LATE:
        first, second = EARLY_RATES if epoch <= EARLY else LATE_RATES
        if first < rate:
            return first, second
    return rate / 10, rate / 100
