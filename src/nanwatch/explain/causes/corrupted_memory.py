"""corrupted-memory: a weight, a moment or a buffer changed without any write by the program."""

from __future__ import annotations

import torch

from nanwatch.explain.bits import flipped_bit, odd_nans
from nanwatch.explain.case import Case, runs_finite
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.instead import with_values
from nanwatch.explain.remedies import offer
from nanwatch.explain.state import (
    ATTACHED,
    STATE,
    Held,
    bad_weights,
    born_at,
    held,
    is_statistic,
    short,
    writes_to,
)
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.watching.storages import key_of
from nanwatch.watching.turned_bits import Flipped

PAGE = Page(
    Text("Corrupted memory", "内存或文件损坏"),
    Text(
        "A value changed although no op of the program wrote it: a bit that a memory module lost, a file "
        "that was cut off or overwritten while it was mapped, a checkpoint that was damaged on its way. "
        "Typical is a single value that is 2^64 or 2^128 times what it was, or NaN whose bits no arithmetic "
        "makes.",
        "程序没有任何算子写过，值却变了：内存条丢了一位、映射中的文件被截断或覆盖、检查点在传输中损坏。"
        "典型表现是某一个值变成原来的 2^64 或 2^128 倍，或者出现任何运算都不会产生的 NaN 位模式。",
    ),
    Text(
        "The checksum that was recorded after the last update against the one now, with the version counter "
        "unchanged; the difference is a power of two when one bit was turned over.",
        "最后一次更新后记录的校验和与现在不同，而版本计数没有变；如果只翻转了一位，两者之差是 2 的幂。",
    ),
    Text(
        "Go back to the last checkpoint, check the memory (ECC counters, `memtest`, `dmesg`), compare the "
        "file with its checksum, and do not let other processes write files that are mapped.",
        "回到最近的检查点，检查内存（ECC 计数、`memtest`、`dmesg`），核对文件的校验和，"
        "不要让别的进程写正在被映射的文件。",
    ),
    ("fwd_long_running_job", "infer_mapped_weights", "opt_week_long_run", "weights_copied_checkpoint"),
)
CHANGED = Text(
    "{name} is not what it was after step {step}, though nothing of the program has written it since.",
    "{name} 与第 {step} 步之后的内容不同，而程序此后没有写过它。",
)
CHANGED_THEN = Text(
    "{name} changed between step {step} and the next update, though nothing of the program wrote it then.",
    "{name} 在第 {step} 步与下一次更新之间变了，而程序在此期间没有写过它。",
)
BIT = Text(
    "one bit was turned over: bit {bit} at {place}, from {before} to {value}",
    "翻转了一位：{place} 处的第 {bit} 位，由 {before} 变为 {value}",
)
BITS = Text(
    "one value changed, and nothing else: {count} bits at {place}, from {before} to {value}",
    "只有一个值变了：{place} 处有 {count} 位不同，由 {before} 变为 {value}",
)
SUM = Text("the sum of its bits differs by {difference}", "各位之和相差 {difference}")
OUTLIER = Text(
    "{name} holds {value} at {place}; with bit {bit} of it turned back it is {before}, like the other "
    "values.",
    "{name} 在 {place} 处为 {value}；把它的第 {bit} 位翻回去就是 {before}，与其余的值相当。",
)
ODD_NAN = Text(
    "{name} holds NaN with the bits {bits}, which no arithmetic makes: the bytes are not those that were "
    "written.",
    "{name} 中的 NaN 位模式为 {bits}，任何运算都不会产生它：这些字节不是当初写入的内容。",
)
NO_UPDATE = Text(
    "no recorded update was large enough to make it (largest gradient norm {norm})",
    "没有哪次记录的更新大到足以造成它（最大梯度范数 {norm}）",
)
FEW_BITS = 2
"""A value that somebody writes differs in more."""

CAME = Text("it came in at {line}", "它在 {line} 处进入程序")


def weigh(case: Case) -> Claim | Against | None:
    if case.phase == "data" or case.trouble.seen_in == "hyperparameter":
        return None
    return _changed(case) or _odd_nan(case) or _outlier(case)


# Checksums


def _changed(case: Case) -> Claim | None:
    """A record of what the memory held, and nobody who wrote it since."""
    record = case.trouble.fingerprints
    if record is None:
        return None
    now, then = record.changed(), record.noticed
    for found, said in [*((each, CHANGED) for each in now), *((each, CHANGED_THEN) for each in then)]:
        one = found.one
        if not _on_record_since(case, found.step) and (one is None or one.bits.bit_count() > FEW_BITS):
            continue  # the program may have written it through `.data`
        if _written(case, found.tensor) or (one is None and found.tensor.is_shared()):
            continue  # by the program, or maybe by another process: a race
        why = said.say(name=found.name, step=found.step)
        if one is None:
            return Claim("possible", why, (SUM.say(difference=found.difference),), 3.5)
        few = one.bits.bit_count() <= FEW_BITS and found.tensor.numel() >= 4
        sure = few and _does_the_harm(case, found.tensor, one)
        return Claim("proved" if sure else "likely", why, (_bits_said(one),), 3.5)
    return None


def _on_record_since(case: Case, step: int) -> bool:
    """Whether every call since then is still on tape, so that a write could be seen."""
    tapes = (*case.trouble.earlier, case.tape)
    return min(tape.step for tape in tapes) <= step and all(tape.whole for tape in tapes)


def _written(case: Case, tensor: torch.Tensor) -> bool:
    """Whether the program writes it without torch's counting: statistics that a kernel updates, `.data` in
    its own code or in a model."""
    key = key_of(tensor)
    mine = next((h for h in held(case) if h.tensor is tensor), None)
    if mine is not None and is_statistic(case, mine):
        return True
    if next(writes_to(case, key), None) is not None:
        return True
    nodes = case.lineage.nodes.values() if case.model_calls else ()
    return any(key in node.keys and node.name.split(".")[1].endswith("_") for node in nodes)


def _does_the_harm(case: Case, tensor: torch.Tensor, one: Flipped) -> bool:
    """Whether the step runs finite with the bit turned back; of the optimizer's state, whether it is the
    update that failed."""
    mine = next((h for h in held(case) if h.tensor is tensor), None)
    if mine is None or mine.kind == STATE:
        return mine is not None and case.phase in ("optimizer", "weights")
    value = tensor.detach().clone()
    value[one.place] = one.before
    return runs_finite(with_values(case, [(mine, value)])) is True


def _bits_said(one: Flipped) -> str:
    place, before, value = list(one.place), short(one.before), short(one.value)
    if one.bits & (one.bits - 1) == 0:
        return BIT.say(bit=one.bit, place=place, before=before, value=value)
    return BITS.say(count=one.bits.bit_count(), place=place, before=before, value=value)


# Without them


def _odd_nan(case: Case) -> Claim | None:
    for each in bad_weights(case) if case.phase == "weights" else ():
        bits = odd_nans(each.tensor)
        if bits is not None:
            line = born_at(case)
            evidence = (CAME.say(line=line),) if line else ()
            certainty = "possible" if each.kind == ATTACHED else "likely"  # it may be mapped wrongly
            return Claim(certainty, ODD_NAN.say(name=each.name, bits=bits), evidence, 3.5)
    return None


def _outlier(case: Case) -> Claim | None:
    """One value out of all proportion, which one bit explains and no update."""
    if case.phase not in ("forward", "loss", "backward", "weights", "optimizer"):
        return None
    for each in held(case):
        one = flipped_bit(each.tensor)
        if one is None or _updates_reach(case, each, one):
            continue
        why = OUTLIER.say(
            name=each.name,
            value=short(one.value),
            place=list(one.place),
            bit=one.bit,
            before=short(one.before),
        )
        back = case.outcome("last-good-weights").finite
        if back is False:
            continue
        return Claim("likely", why, (NO_UPDATE.say(norm=_largest_norm(case)),), 3.5)
    return None


def _largest_norm(case: Case) -> str:
    norms = [f.grad_norm for f in case.history if isinstance(f.grad_norm, float)]
    return short(max(norms)) if norms else "-"


def _updates_reach(case: Case, each: Held, one: Flipped) -> bool:
    """Whether the recorded rates and gradients could have carried the value there in one step."""
    reach = 0.0
    for facts in case.history:
        if isinstance(facts.grad_norm, float) and facts.lr:
            reach += max(facts.grad_norm, 10.0) * max(facts.lr)
    return abs(one.value) <= 1e3 * (reach + abs(one.before))


def remedies(case: Case) -> list[Remedy]:
    return offer(case, "roll-back", "check-hardware", "check-loading")
