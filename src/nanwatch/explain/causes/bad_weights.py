"""bad-weights: parameters or buffers were not finite when they were loaded or attached."""

from __future__ import annotations

from nanwatch.explain.bits import odd_nans
from nanwatch.explain.case import Case
from nanwatch.explain.causes.bad_input import PUTS
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.experiments.one_worker import written_by_others
from nanwatch.explain.remedies import offer
from nanwatch.explain.state import (
    ATTACHED,
    Held,
    allocation_of,
    bad_weights,
    born_at,
    came_bad,
    count_bad,
    is_statistic,
    of_optimizer,
    optimizer_of,
)
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.tensors import is_finite
from nanwatch.watching.tape import version_of

PAGE = Page(
    Text("Bad weights", "权重有问题"),
    Text(
        "A parameter or a buffer held NaN or Inf before training touched it: a damaged or diverged "
        "checkpoint, an adapter from elsewhere, a table of word vectors with a missing line, a value that "
        "the program itself wrote. A bad row of an embedding may lie there for thousands of steps until its "
        "token comes up.",
        "参数或缓冲区在训练动它之前就含有 NaN 或 Inf：损坏或已发散的检查点、别处得来的适配器、缺行的词向量表"
        "，或程序自己写入的值。嵌入表中坏掉的一行可能潜伏数千步，直到对应的 token 出现。",
    ),
    Text(
        "The tensor is bad although no update has been made, or it is frozen and was never written since it "
        "was made, or the call that brought it in is on record.",
        "还没有做过任何更新，张量就已经坏了；或者它被冻结，自创建以来从未被写过；或者把它带进来的那次调用有"
        "记录。",
    ),
    Text(
        "Check the file before loading, load an older checkpoint, re-initialise the rows "
        "that are bad, and refuse to save weights that are not finite.",
        "加载前先检查文件，改用较早的检查点，重新初始化坏掉的行，并且不要保存非有限的权重。",
    ),
    ("weights_load_bad_state", "weights_adapter_file", "weights_embedding_row", "weights_word_vectors"),
)
LOADED = Text(
    "{name} held {bad} non-finite of {count} values before the first update{where}.",
    "{name} 在第一次更新之前就有 {bad}/{count} 个非有限值{where}。",
)
BROUGHT = Text(
    "{name} holds {bad} non-finite of {count} values; they came in at {line}, not by an update.",
    "{name} 有 {bad}/{count} 个非有限值；它们是在 {line} 处带进来的，不是更新产生的。",
)
FROZEN = Text(
    "{name} holds {bad} non-finite of {count} values; no optimizer has it and nothing was written into it "
    "since it was made.",
    "{name} 有 {bad}/{count} 个非有限值；没有优化器管它，自创建以来也没有任何写入。",
)
LAY_THERE = Text(
    "{name} holds {bad} non-finite of {count} values; the update before this step, made again, gives finite "
    "weights.",
    "{name} 有 {bad}/{count} 个非有限值；把这一步之前的更新重做一遍，得到的权重是有限的。",
)
AT = Text(" (written at {line})", "（在 {line} 处写入）")
COMPUTED = Text(
    "{name} was made non-finite by the program's own arithmetic at {line}.",
    "{name} 是被程序自己的运算（{line}）变成非有限的。",
)
MAPPED = Text(
    "its NaN have the bits {bits}, which no arithmetic makes: bytes of something else (another offset, dtype "
    "or size than was written), or never written",
    "其中 NaN 的位模式为 {bits}，任何运算都不会产生它：这是别的内容的字节（偏移、dtype 或大小与写入时不同），"
    "或者从未写入过",
)
FIRST = Text("it was already bad when the model was first called", "模型第一次被调用时它就已经坏了")


def weigh(case: Case) -> Claim | Against | None:
    if case.phase != "weights":
        return None
    bad = bad_weights(case)
    if not bad:
        return None
    first = bad[0]
    op = case.located.op
    if op is not None and not _only_put(op.name):
        named = COMPUTED.say(name=first.name, line=born_at(case))
        return None if op.name.startswith("aten.empty") else Claim("possible", named, (), 3.0)
    if allocation_of(case, first.tensor) is not None:
        return None
    if is_statistic(case, first) and not came_bad(case, first):
        return None
    if first.kind == ATTACHED and any(w.tensor is first.tensor for w in written_by_others(case)):
        return None  # a race
    return _brought_in(case, first)


def _only_put(name: str) -> bool:
    parts = name.split(".")
    return len(parts) > 1 and parts[1] in PUTS


def _brought_in(case: Case, held: Held) -> Claim | None:
    facts = {"name": held.name, "bad": count_bad(held.tensor), "count": held.tensor.numel()}
    line = born_at(case)
    odd = odd_nans(held.tensor)
    sure = "likely" if odd is not None else "proved"
    if held.kind == ATTACHED:
        mapped = () if odd is None else (MAPPED.say(bits=odd),)
        return Claim(sure, BROUGHT.say(**facts, line=line), mapped, 3.0)
    if case.trouble.last_update is None:
        return Claim(sure, LOADED.say(**facts, where=AT.say(line=line) if line else ""), (), 3.0)
    record = case.trouble.fingerprints
    if record is not None and held.name in record.bad_at_first:
        return Claim(sure, LOADED.say(**facts, where=""), (FIRST.say(),), 3.0)
    if line:
        return Claim(sure, BROUGHT.say(**facts, line=line), (), 3.0)
    if not _trained(case, held):
        unwritten = version_of(held.tensor) == 0
        return Claim(sure if unwritten else "likely", FROZEN.say(**facts), (), 3.0)
    if facts["bad"] == facts["count"] or _state_is_bad(case, held):
        return None  # an update did that
    return Claim("likely", LAY_THERE.say(**facts), (), 3.0)


def _trained(case: Case, held: Held) -> bool:
    optimizer = optimizer_of(case)
    groups = [] if optimizer is None else optimizer.param_groups
    return any(p is held.tensor for group in groups for p in group["params"])


def _state_is_bad(case: Case, held: Held) -> bool:
    return any(s.parameter is held.tensor and not is_finite(s.tensor) for s in of_optimizer(case))


def remedies(case: Case) -> list[Remedy]:
    return offer(case, "check-loading", "roll-back", "initialise")
