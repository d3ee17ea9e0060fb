"""An asynchronous copy was read before it was done, or its source was used again too early."""

from __future__ import annotations

from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page, Place
from nanwatch.explain.experiments.synchronous_copies import Copy, copies_into
from nanwatch.explain.remedies import offer
from nanwatch.explain.samples import batch_of
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite

PAGE = Page(
    title=Text("A copy that was not done yet", "拷贝尚未完成"),
    meaning=Text(
        "A copy between host and device was started with non_blocking=True, or on another stream, and "
        "somebody did not wait for it: the target was read before the values were there, or the pinned "
        "source was overwritten while the copy was still under way. What was read is what happened to be "
        "there before.",
        "主机与设备之间的拷贝以 non_blocking=True 启动，或在另一个流上进行，而使用者没有等它完成：要么在数值"
        "到达之前就读了目标，要么在拷贝还在进行时就改写了锁页内存中的源。读到的是原来恰好在那里的内容。",
    ),
    proof=Text(
        "The same step with synchronous copies runs finite, and an asynchronous copy that the step hangs on "
        "is on record.",
        "使用同步拷贝运行同一步时结果有限，并且记录中有这一步所依赖的异步拷贝。",
    ),
    cures=Text(
        "Wait where it matters: `current_stream().wait_stream(copy_stream)` before the target is used and "
        "`tensor.record_stream(...)` after; an event before the host reads a value or refills a pinned "
        "buffer; or simply non_blocking=False. A copy to the host with non_blocking=True is never safe to "
        "read without waiting.",
        "在需要的地方等待：使用目标之前调用 `current_stream().wait_stream(copy_stream)`，之后调用 "
        "`tensor.record_stream(...)`；主机读取数值或重填锁页缓冲区之前等待事件；或者直接用 "
        "non_blocking=False。以 non_blocking=True 拷贝到主机后，不等待就读取总是不安全的。",
    ),
    examples=("data_prefetch_to_gpu", "fwd_streamed_layers", "loss_statistics_to_host"),
)

WHY = Text(
    "The step hangs on a copy that nobody waited for{where}; with synchronous copies it runs finite.",
    "这一步依赖一个没有等待完成的拷贝{where}；使用同步拷贝时结果有限。",
)
BY_COPY = Text(
    "What the step read came by a copy that somebody had to wait for{where}, and its source was written to "
    "since, or it went by another stream.",
    "这一步读到的内容来自一个必须等待的拷贝{where}，其源此后被改写，或拷贝在另一个流上进行。",
)
AT_LINE = Text(" (line {line}: {code})", "（第 {line} 行：{code}）")
INSIDE = Text(" inside the model", "（在模型内部）")


def weigh(case: Case) -> Claim | Against | None:
    if case.phase in ("optimizer",) or case.trouble.seen_in == "hyperparameter":
        return None
    if case.located.by == "replay" and case.phase in ("forward", "backward"):
        return None  # it failed again under the eyes of a tracer, which waits for every op
    found = case.outcome("synchronous-copies")
    copies = [c for c in found.value or [] if isinstance(c, Copy)]
    if not found.finite or not copies:
        return _came_by_copy(case)
    guilty = next((c for c in copies if c.frame is not None), copies[0])
    frame = guilty.frame
    where = INSIDE.say() if frame is None else AT_LINE.say(line=frame.line, code=frame.code)
    place = None if _arithmetic(case) or frame is None else Place(guilty.stack, guilty.phase)
    return Claim("proved", WHY.say(where=where), (found.text,), 4.0, place)


def _came_by_copy(case: Case) -> Claim | None:
    """The batch is bad, and what it was copied from is not there any more to be copied again."""
    bad = [t for _, t in batch_of(case) if measurable(t) and not is_finite(t)] if case.phase == "data" else []
    guilty = next((c for t in bad for c in copies_into(case, t) if c.frame is not None), None)
    if guilty is None or guilty.frame is None:
        return None
    where = AT_LINE.say(line=guilty.frame.line, code=guilty.frame.code)
    return Claim("likely", BY_COPY.say(where=where), (), 4.0, Place(guilty.stack, guilty.phase))


def _arithmetic(case: Case) -> bool:
    """Whether an op computed the bad value; else what was read is what happened to be in the memory."""
    op = case.located.op
    return op is not None and any(not o.from_python for o in op.inputs)


def remedies(case: Case) -> list[Remedy]:
    return offer(case, "synchronise-copy")
