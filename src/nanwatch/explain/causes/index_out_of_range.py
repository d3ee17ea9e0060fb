"""index-out-of-range: a token id, label or scatter index points outside its table."""

from __future__ import annotations

from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.experiments.valid_indices import Lookup, on_tape
from nanwatch.explain.lineage import Node
from nanwatch.explain.remedies import offer
from nanwatch.explain.samples import about_rows
from nanwatch.explain.state import line_of
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.replay.out_of_range import BY_DIMENSION, OutOfRange, base_of
from nanwatch.replay.samples import batch_size

PAGE = Page(
    Text("Index out of range", "索引越界"),
    Text(
        "An id, a label or a position points where it should not. Beyond the end torch raises; below zero "
        "it does not: -1 counts from the end, so an unknown word, a missing label or the interval left of "
        "the first knot silently reads the last entry, which is a spare, a masked action or another "
        "interval.",
        "id、标签或位置指向了不该指的地方。超出末尾时 torch 会报错；小于零时却不会：-1 从末尾倒数，"
        "于是未知词、缺失的标签或第一个节点左边的区间，会悄悄读到最后一项：备用项、被屏蔽的动作或别的区间。",
    ),
    Text(
        "The index and the size of the table, where torch has refused it; or the bad values are exactly "
        "those that were looked up with it, or the step with valid indices runs finite.",
        "torch 拒绝该索引时，索引值与表的大小；或者坏值恰好就是用它查出来的那些，或者换成有效索引后这一步结果"
        "有限。",
    ),
    Text(
        "Check ids where they are made (`assert ids.min() >= 0`), give unknown words and ended episodes a "
        "row of their own or mask them, clamp positions to the table.",
        "在产生 id 的地方检查（`assert ids.min() >= 0`），给未知词和已结束的回合单独一行或加掩码，把位置夹到"
        "表的范围内。",
    ),
    ("fwd_sensor_calibration", "fwd_dose_curve", "loss_replayed_actions"),
)
NEGATIVE = Text(
    "{op} at {line} looks up index {index} in a table of {size}: it counts from the end.",
    "{op}（{line}）在大小为 {size} 的表中查找索引 {index}：它从末尾倒数。",
)
OUTSIDE = Text(
    "{op} at {line} was given the index {index} for a table of {size}: valid are {lowest} to {highest}.",
    "{op}（{line}）收到索引 {index}，而表的大小为 {size}：有效范围是 {lowest} 到 {highest}。",
)
WHERE = Text(
    "{count} of {length} entries of {name} hold such an index, the first is {first}",
    "{name} 的 {length} 项中有 {count} 项是这样的索引，第一项是 {first}",
)
SAME_ROWS = Text("the bad rows are exactly those with a negative index", "坏掉的行恰好就是索引为负的行")
LOOKS_UP = ("index", "take", "index_put", "_unsafe_index")


def weigh(case: Case) -> Claim | Against | None:
    if case.located.out_of_range is not None:
        return _raised(case.located.out_of_range)
    birth = case.birth
    if birth is None or case.phase in ("weights", "optimizer", "data"):
        return None
    lineage = case.lineage
    node = lineage.node_of(birth.op)
    if node is None:
        return None
    if node.phase == "backward":
        node = lineage.forward_of(node) or node
    suspect = next((n for n in (node, *lineage.upstream(node, 60)) if _lowest(n) < 0), None)
    if suspect is None:
        return None
    outcome = case.outcome("valid-indices")
    lookups: list[Lookup] = [*(outcome.value or ()), *on_tape(case)]
    fitting = next((one for one in lookups if one.lowest == _lowest(suspect)), None)
    if fitting is None:
        return None
    line = line_of(suspect.stack)
    why = NEGATIVE.say(op=suspect.base, line=line, index=fitting.lowest, size=fitting.size)
    evidence = about_rows(case, case.located.birth.samples or fitting.rows)
    if _same_rows(case, lookups):
        return Claim("proved", why, (SAME_ROWS.say(), *evidence), 2.5)
    return Claim("proved" if outcome.finite else "possible", why, tuple(evidence), 2.5)


def _raised(found: OutOfRange) -> Claim:
    """torch itself has refused it."""
    outside, base = found.outside, base_of(found.op)
    why = OUTSIDE.say(
        op=base,
        line=line_of(found.stack),
        index=outside.index,
        size=outside.size,
        lowest=-outside.size if base in (*BY_DIMENSION, "take") else 0,
        highest=outside.size - 1,
    )
    where = WHERE.say(
        count=len(outside.rows), length=outside.length, name=outside.name, first=outside.rows[0]
    )
    return Claim("proved", why, (where,), 5.0)


def _lowest(node: Node) -> int:
    """The lowest index that an op looks something up with; 0 for other ops."""
    if node.base not in LOOKS_UP:
        return 0
    given = [
        n.min for name, n in node.given.items() if name.startswith(("indices", "index")) and n.min is not None
    ]
    return int(min(given, default=0))


def _same_rows(case: Case, lookups: list[Lookup]) -> bool:
    """Whether the op went wrong in those rows that have a negative index, and in no others."""
    bad = case.birth.bad if case.birth is not None else None
    size = batch_size(case.tape)
    if bad is None or bad.dim() == 0 or size is None or size < 2 or bad.shape[0] != size:
        return False
    rows = tuple(int(i) for i in bad.reshape(size, -1).any(1).nonzero().reshape(-1).tolist())
    return len(rows) < size and any(one.rows == rows and one.count == size for one in lookups)


def remedies(case: Case) -> list[Remedy]:
    return offer(case, "check-index", "drop-bad-rows", "clean-data")
