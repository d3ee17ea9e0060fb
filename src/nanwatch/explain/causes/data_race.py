"""Another thread or process wrote what this step was reading."""

from __future__ import annotations

from nanwatch.explain.case import Case
from nanwatch.explain.causes.transient_fault import concerned
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.experiments.one_worker import Written, others, written_by_others
from nanwatch.explain.remedies import offer
from nanwatch.explain.replaced_attributes import read_by_birth, replaced_attributes
from nanwatch.explain.state import attached
from nanwatch.explain.text import Text
from nanwatch.explain.written_under_tasks import written_under_a_task
from nanwatch.records import Remedy
from nanwatch.watching.stack import user_frame
from nanwatch.watching.storages import key_of

PAGE = Page(
    title=Text("A data race", "数据竞争"),
    meaning=Text(
        "A thread or a process wrote into memory while this step was reading it: a loader that fills a "
        "buffer which is still in use, a server that averages weights in place, two requests that share the "
        "state of one model. The step saw a half-written value. On its own each side is right.",
        "某个线程或进程在这一步读取内存的同时写入了它：例如加载器填充仍在使用的缓冲区、服务器就地平均权重、"
        "两个请求共用同一个模型的状态。这一步读到了写了一半的值。单独来看，每一方都没有错。",
    ),
    proof=Text(
        "Memory that the step read holds something else now, though no call of this thread wrote it; or it "
        "changes while this thread does nothing but look. Another thread or process is alive that runs code "
        "of the program. Or the step fails again with its worker threads side by side, and runs finite when "
        "their tasks come one after the other.",
        "这一步读过的内存现在内容不同了，但本线程没有任何调用写过它；或者在本线程只是观察时它仍在变化。并且"
        "有另一个运行该程序代码的线程或进程存活。或者：各工作线程并行时这一步再次失败，任务逐个执行时结果有限。",
    ),
    cures=Text(
        "Let only one side have the memory at a time: a lock around write and read, two buffers that are "
        "swapped when one is complete, or a copy that is handed over. State that belongs to a request is an "
        "argument, not a buffer of the model. To be sure that this is it, run once with a single worker.",
        "让同一时刻只有一方使用该内存：读写都加锁，或使用写完才交换的双缓冲，或交出一份拷贝。属于某个请求的"
        "状态应作为参数传递，而不是放在模型的缓冲区里。要确认原因，可用单个工作线程运行一次。",
    ),
    examples=("data_shared_frames", "fwd_weight_server", "infer_two_requests"),
)

WRITTEN = Text(
    "{what}, which this step read, was written by somebody else: it holds other values now, and no call of "
    "this thread wrote it. Also running: {who}.",
    "这一步读取的 {what} 被别处改写：它现在的值不同了，而本线程没有任何调用写过它。同时在运行：{who}。",
)
UNKNOWN_WRITER = Text(
    "{what}, which this step read, holds other values now, and no call of this thread wrote it.",
    "这一步读取的 {what} 现在的值不同了，而本线程没有任何调用写过它。",
)
NOT_AGAIN = Text(
    "The step does not fail again when it is repeated, and other threads run code of the program: {who}.",
    "重复这一步时不再失败，而且有其他线程在运行该程序的代码：{who}。",
)
SIDE_BY_SIDE = Text(
    "The step fails when its worker threads run side by side, and not when their tasks come one after the "
    "other: they write what another of them is reading.",
    "各工作线程并行运行时这一步失败，逐个执行任务时则不失败：一个线程写入了另一个线程正在读取的内存。",
)
UNDER_A_TASK = Text(
    "Line {line} ({code}) wrote memory that a task in another thread could still reach: the task was handed "
    "over before and had not ended, and what this step read is what it returned.",
    "第 {line} 行（{code}）写入了另一个线程的任务仍可访问的内存：该任务在此之前交出、当时尚未结束，"
    "而这一步读取的正是它的返回值。",
)
VERSIONS = Text(
    "the version of that memory when the task was handed over, when it was written, and when the task ended",
    "该内存在任务交出时、被写入时和任务结束时的版本号",
)
REPLACED = Text(
    "{what}, which the model carries from call to call, is another tensor than its last call left there, and "
    "no call of this thread made it. Also running: {who}.",
    "模型在各次调用之间保存的 {what} 已不是上一次调用留下的张量，而本线程没有任何调用产生过它。"
    "同时在运行：{who}。",
)
LOOKED = Text("it changed while this thread only looked", "在本线程只是观察时它发生了变化")
VERSION = Text("its version and its values were compared with the record", "将其版本和数值与记录做了比较")


def weigh(case: Case) -> Claim | Against | None:
    if case.trouble.seen_in in ("hyperparameter", "weights") or case.phase == "optimizer":
        return None
    if case.phase == "weights" and not _attached_weight(case):
        return None
    who = others(case)  # before the experiment, which takes its time: a thread may end
    guilty = next((w for w in written_by_others(case) if _read_by_birth(case, w)), None)
    if guilty is not None and who:
        why = WRITTEN.say(what=guilty.name, who=", ".join(who[:3]))
        return Claim("proved", why, ((LOOKED if guilty.while_waiting else VERSION).say(),), 4.0)
    if guilty is not None and guilty.while_waiting:
        return Claim("likely", UNKNOWN_WRITER.say(what=guilty.name), (LOOKED.say(),), 4.0)
    turns = case.outcome("in-turn")
    if turns.finite:
        return Claim("proved" if _fails_again(case) else "likely", SIDE_BY_SIDE.say(), (turns.text,), 4.0)
    replaced = next((r for r in replaced_attributes(case) if read_by_birth(case, r)), None) if who else None
    if replaced is not None:
        return Claim("likely", REPLACED.say(what=replaced.name, who=", ".join(who[:3])), (), 4.0)
    under = written_under_a_task(case)
    frame = None if under is None else user_frame(under.by)
    if frame is not None:
        why = UNDER_A_TASK.say(line=frame.line, code=frame.code)
        return Claim("likely", why, (VERSIONS.say(),), 4.0)
    if who and concerned(case) and case.outcome("repeat").finite:
        return Claim("likely", NOT_AGAIN.say(who=", ".join(who[:3])), (), 3.9)
    return None


def _fails_again(case: Case) -> bool:
    """Whether it failed in a replay, too, with the threads side by side."""
    if case.located.by == "replay" or case.outcome("repeat").finite is False:
        return True
    return case.birth is not None and case.lineage.node_of(case.birth.op) is not None


def _attached_weight(case: Case) -> bool:
    """Whether the bad weight lies in memory that came from elsewhere, where others may write it."""
    shown = {n.name for n in case.located.birth.outputs}
    return any(held.name in shown for held in attached(case))


def _read_by_birth(case: Case, written: Written) -> bool:
    """Whether the birth hangs on that memory. Where no birth is known, all that the step read counts."""
    if case.phase == "weights":
        return any(n.name == written.name for n in case.located.birth.outputs)
    if case.birth is None:
        return True
    key = key_of(written.tensor)
    op = case.birth.op
    if any(o.key == key for o in op.inputs):
        return True
    if case.phase == "data":
        return True  # read by the program's own code before the model
    lineage = case.lineage
    nodes = [n for n in lineage.nodes.values() if n.name == op.name and n.stack == op.stack]
    if not nodes:
        return True
    near = {k for n in [nodes[0], *lineage.upstream(nodes[0], 400)] for _, _, k in n.inputs}
    return key in near


def remedies(case: Case) -> list[Remedy]:
    in_data = ("skip-batch",) if case.phase == "data" else ()
    return offer(case, "await-task", "one-worker-or-lock", *in_data)
