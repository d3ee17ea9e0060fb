"""The same step on the same state does not fail again: something hit it once."""

from __future__ import annotations

import torch

from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.experiments.one_worker import others
from nanwatch.explain.experiments.repeat import Repeats
from nanwatch.explain.mechanism import INHERITED, UNKNOWN
from nanwatch.explain.remedies import offer
from nanwatch.explain.state import born_at
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.replay.weights_in_between import WeightsInBetween

PAGE = Page(
    title=Text("A fault that does not come again", "不再重现的瞬时故障"),
    meaning=Text(
        "The step gave a non-finite value once. Run again on the same weights, the same batch and the same "
        "random numbers it is finite, every time and with the same bits. So neither the data nor the code "
        "as it is written makes the value: a message, a transfer, a kernel or a cell of memory was damaged "
        "on its way. Defective memory, an overheated or failing accelerator, a bad link or a driver that "
        "writes where it should not are the usual sources.",
        "这一步曾经产生过非有限值；但用同样的权重、同样的数据和同样的随机数重新运行，每次结果都有限且逐位相"
        "同。因此既不是数据，也不是代码本身产生了这个值：是某条消息、某次传输、某个内核或某个内存单元在途中"
        "被损坏。常见来源有：内存故障、加速卡过热或损坏、链路不良，或驱动程序写到了不该写的地方。",
    ),
    proof=Text(
        "Repeats of the recorded step run finite and give the same bits among themselves; where what was "
        "recorded is finite, it is the same bits too. The op that made the value was seen, and did not have "
        "to make it of what it was given. No other thread runs code of the program, no copy was under way, "
        "and nothing was compiled.",
        "重复运行所记录的步骤，结果都有限且彼此逐位相同；记录中有限的部分也与之逐位相同。产生该值的 op 被当"
        "场看到，而它的输入并不必然产生这个值。没有其他线程在运行该程序的代码，没有正在进行的拷贝，也没有编译过"
        "的代码。",
    ),
    cures=Text(
        "Skip the step and go on: nothing is wrong with the state. If it happens again, check the machine: "
        "memory tests, the error counters of the accelerator, its temperature, the link; and keep the node "
        "out of the job until then.",
        "跳过这一步继续训练即可：状态没有问题。如果再次发生，请检查机器：内存测试、加速卡的错误计数、温度和"
        "链路；在此之前不要让该节点参与任务。",
    ),
    examples=("bwd_gradient_exchange", "fwd_board_transfer", "infer_shared_scratch"),
)

WHY = Text(
    "The step failed once and does not fail again: repeated on the same weights, batch and random numbers "
    "it runs finite, and {bad} of {count} recorded values were not.",
    "这一步失败了一次，不再失败：用同样的权重、数据和随机数重复运行，结果都有限；而记录中 {count} 个值里有 "
    "{bad} 个不是有限值。",
)
PLAIN = Text(
    "The step failed once and does not fail again on the same weights, batch and random numbers.",
    "这一步失败了一次；用同样的权重、数据和随机数重复运行，不再失败。",
)
AGREES = Text(
    "wherever the record is finite, the repeats give the same bits",
    "记录中有限的部分，重复运行得到逐位相同的值",
)
ALIKE = Text("the repeats are bit for bit alike", "各次重复逐位相同")
UNLIKE = Text("the repeats differ among themselves", "各次重复彼此不同")
AGAIN = Text("the step fails again when it is repeated", "重复这一步时再次失败")
HANDED_OUT = Text(
    "the memory was given to NumPy or another library at {line}, which may have written it",
    "这块内存在 {line} 处交给了 NumPy 或其他库，可能是它们写入的",
)

SHOWN = ("loss", "gradients", "output", "exception")


def weigh(case: Case) -> Claim | Against | None:
    if not concerned(case):
        return None
    found = case.outcome("repeat")
    if found.finite is False:
        return Against(AGAIN.say())
    if not found.finite or not isinstance(found.value, Repeats):
        return None
    if case.located.handed_out:
        return Against(HANDED_OUT.say(line=born_at(case) or "?"))
    if _explained_otherwise(case):
        return None
    repeats = found.value
    if not repeats.alike:
        return Against(UNLIKE.say())  # it hangs on something that no record holds: a counter, a clock
    explained = case.reproduced and case.mechanism.kind not in (UNKNOWN, INHERITED)
    if not repeats.agrees:
        return None if explained else _not_the_same(case)
    why = WHY.say(bad=repeats.bad, count=repeats.count)
    certainty = "proved" if case.reproduced else "likely"  # a setting that no record holds may touch one row
    if explained or others(case):
        certainty = "possible"  # the op had to make it: something was another one, hit or set
    return Claim(certainty, why, (ALIKE.say(), AGREES.say()), 4.0)


def _not_the_same(case: Case) -> Claim | None:
    """No finite value is left in the record, or it differs: the state may have been another one, which no
    record holds (a variable of the program, gradients of earlier steps). Where the program has changed its
    weights since, nothing was repeated."""
    if getattr(case.trouble, "threads", None) != () or others(case):
        return None
    if WeightsInBetween(case.tape) and not case.tape.weights_follow:
        return None
    return Claim("possible", PLAIN.say(), (ALIKE.say(),), 4.0)


def concerned(case: Case) -> bool:
    """Whether a repeat of the step says anything: the bad value was seen in what a step makes, and was
    neither brought in, nor made by the update, by another rank, or by work on the gradients after the
    backward."""
    if case.trouble.seen_in not in SHOWN or case.trouble.scaler_search or case.tape.entries == []:
        return False
    if not case.reproduced:
        return not _several_ranks()
    live = case.located.by == "live trace"
    return live and case.phase in ("forward", "loss") and not _several_ranks()


def _several_ranks() -> bool:
    available = torch.distributed.is_available() and torch.distributed.is_initialized()
    return available and torch.distributed.get_world_size() > 1


def _explained_otherwise(case: Case) -> bool:
    """Compiled code that fails again, copies under way, memory that somebody else writes."""
    if case.outcome("one-worker").value:
        return True
    modes = case.outcome("eager").value
    if modes is not None and modes.compiled_fails is not False:
        return True
    return bool(case.outcome("synchronous-copies").value)


def remedies(case: Case) -> list[Remedy]:
    return offer(case, "skip-batch", "check-hardware", "roll-back")
