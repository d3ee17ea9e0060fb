"""uninitialised-memory: parameters, buffers or scratch memory that nobody wrote before they were read."""

from __future__ import annotations

import torch

from nanwatch.explain.case import Case, runs_finite
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.instead import with_values
from nanwatch.explain.remedies import offer
from nanwatch.explain.state import (
    Held,
    allocation_of,
    bad_weights,
    born_at,
    count_bad,
    line_of,
    of_modules,
    of_optimizer,
)
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.replay.trace import Op
from nanwatch.tensors import is_finite

PAGE = Page(
    Text("Uninitialised memory", "未初始化的内存"),
    Text(
        "Memory was read that nobody had written: `torch.empty`, `new_empty`, `to_empty` after building a "
        "model on the meta device, a parameter that no key of the checkpoint filled, the rows of a padded "
        "batch beyond the data. What it holds is what was there before: often zeros, sometimes huge numbers "
        "or NaN. So the program works for weeks, and on another machine it does not.",
        "读取了从未写过的内存：`torch.empty`、`new_empty`、在 meta 设备上建模后的 `to_empty`、检查点中缺少键"
        "的参数、填充批次中超出数据的行。里面放的是这块内存原先的内容：常常是 0，有时是巨大的数或 NaN。所以"
        "程序可能好几周都正常，换一台机器就失败。",
    ),
    Text(
        "The call that allocated the memory is on record and no write into it; or the step fails when fresh "
        "memory is filled with NaN and runs finite when it is filled with zeros.",
        "分配内存的调用有记录，而没有任何写入；或者把新内存填满 NaN 时这一步失败，填满 0 时结果有限。",
    ),
    Text(
        "Initialise what you allocate (`zeros`, `full`, `nn.init`), call `reset_parameters()` after "
        "`to_empty`, look at `missing_keys` of `load_state_dict(strict=False)`. "
        "`torch.use_deterministic_algorithms(True)` fills fresh memory with NaN and makes such reads "
        "certain.",
        "分配之后就初始化（`zeros`、`full`、`nn.init`），`to_empty` 之后调用 `reset_parameters()`，"
        "检查 `load_state_dict(strict=False)` 返回的 `missing_keys`。"
        "`torch.use_deterministic_algorithms(True)` 会把新内存填满 NaN，让这类读取必然暴露。",
    ),
    ("weights_position_table", "weights_built_on_meta", "fwd_ragged_batch", "opt_heavy_ball"),
)
NEVER_WRITTEN = Text(
    "{name} was allocated by {call} at {line} and never written: {bad} of its {count} values are not finite.",
    "{name} 由 {call}（{line}）分配，此后从未写入：{count} 个值中有 {bad} 个非有限。",
)
READ = Text(
    "{op} at {line} hands out memory as it was found, and it is read before all of it is written.",
    "{op}（{line}）给出的内存未经清理，还没全部写完就被读取。",
)
IN_UPDATE = Text(
    "The optimizer's first update reads memory that it allocates and never writes: {names} is not finite.",
    "优化器的第一次更新读取了自己分配却从未写入的内存：{names} 非有限。",
)
POISON = Text(
    "a first update with fresh memory full of NaN gives NaN, full of zeros it is finite",
    "首次更新时新内存填满 NaN 就得到 NaN，填满 0 则结果有限",
)
ALLOCATES = ("aten.empty", "aten.new_empty", "aten.resize_")


def weigh(case: Case) -> Claim | Against | None:
    op = case.located.op
    if op is not None and op.name.startswith(ALLOCATES):
        return _read_unwritten(case, op)
    if case.phase == "weights" and op is None:
        return _weight_never_written(case) or _in_the_update(case)
    if case.phase in ("forward", "loss", "backward"):
        return _garbage_weight(case) or _garbage_scratch(case)
    return None


def _read_unwritten(case: Case, op: Op) -> Claim | Against:
    why = READ.say(op=op.name.split(".")[1], line=born_at(case))
    if case.phase in ("weights", "data"):
        return Claim(_certainty(), why, (), 3.0)
    if case.phase == "optimizer":
        read = case.outcome("poisoned-update").value
        return Claim("proved" if read else _certainty(), why, (POISON.say(),) if read else (), 3.0)
    outcome = case.outcome("poisoned-memory")
    if outcome.value is False:
        return Against(outcome.text)
    return Claim("proved" if outcome.value else "likely", why, (outcome.text,) if outcome.text else (), 3.0)


def _certainty() -> str:
    """That torch did not see a write does not prove that there was none: somebody may fill memory through
    numpy. Unless torch fills what it hands out with NaN, and NaN is what is there."""
    fills = bool(getattr(torch.utils.deterministic, "fill_uninitialized_memory", False))
    return "proved" if fills and torch.are_deterministic_algorithms_enabled() else "likely"


def _weight_never_written(case: Case) -> Claim | None:
    for held in bad_weights(case):
        found = _never_written(case, held)
        if found is not None:
            whole = count_bad(held.tensor) == held.tensor.numel()
            return Claim(_certainty() if whole else "likely", found, (), 3.0)
    return None


def _never_written(case: Case, held: Held) -> str | None:
    entry = allocation_of(case, held.tensor)
    if entry is None:
        return None
    return NEVER_WRITTEN.say(
        name=held.name,
        call=entry.call.__name__,
        line=line_of(entry.stack),
        bad=count_bad(held.tensor),
        count=held.tensor.numel(),
    )


def _garbage_weight(case: Case) -> Claim | None:
    """Finite, but whatever was there."""
    for held in of_modules(case.models):
        found = _never_written(case, held)
        if found is not None:
            finite = runs_finite(with_values(case, [(held, torch.zeros_like(held.tensor))]))
            return Claim("likely" if finite else "possible", found, (), 3.0)
    return None


def _garbage_scratch(case: Case) -> Claim | None:
    """Only worth trying where the step allocates by name."""
    if not case.model_calls:
        return None
    nodes = case.lineage.nodes.values()
    asked = next((n for n in nodes if n.phase != "backward" and n.name.startswith(ALLOCATES[:2])), None)
    if asked is None:
        return None
    outcome = case.outcome("poisoned-memory")
    if not outcome.value or outcome.finite is not True:
        return None
    return Claim("proved", READ.say(op=asked.base, line=line_of(asked.stack)), (outcome.text,), 3.0)


def _in_the_update(case: Case) -> Claim | None:
    bad = [s for s in of_optimizer(case) if not is_finite(s.tensor)]
    if not bad or case.outcome("poisoned-update").value is not True:
        return None
    return Claim("proved", IN_UPDATE.say(names=bad[0].name), (POISON.say(),), 3.0)


def remedies(case: Case) -> list[Remedy]:
    return offer(case, "initialise", "check-loading")
