"""Numbers of a model that were cast along with its weights and lost their meaning: a decay of 0.999 that is 1
in bfloat16, an eps of 1e-8 that is 0 in float16. To run the step in float32 does not bring them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nanwatch.explain.birth import NARROW, BirthOp
from nanwatch.explain.lineage import Node
from nanwatch.explain.state import BUFFER, is_statistic, of_modules
from nanwatch.explain.text import Text
from nanwatch.watching.storages import key_of

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

CAST = Text(
    "{value:g} was cast to {dtype}, where it is {held:g}", "{value:g} 被转换为 {dtype}，在其中就是 {held:g}"
)
KEPT = Text(
    "{name} is exactly {held:g} in {dtype}: what it was before it was rounded, float32 cannot bring back",
    "{name} 在 {dtype} 中恰好是 {held:g}：它被舍入之前的值，换成 float32 也找不回来",
)
FAR = 12


def rounded_constants(case: Case, birth: BirthOp, operand: str) -> tuple[str, ...]:
    """In words: those of which the operand was made. The cast is on record, or the model keeps a narrow
    number that is exactly 0 or 1 and never changes."""
    lineage = case.lineage
    node = lineage.node_of(birth.op)
    maker = None if node is None else lineage.maker(node, operand)
    if node is None or maker is None:
        return ()
    cast = [_lost_in_cast(each) for each in (maker, *lineage.upstream(maker, FAR))]
    read = {key_of(t) for t in lineage.leaves_of(node, operand)}
    kept = [
        KEPT.say(name=h.name, held=float(h.tensor), dtype=_name(h.tensor.dtype))
        for h in of_modules(case.models)
        if h.kind == BUFFER and h.key in read and h.tensor.numel() == 1 and h.tensor.dtype in NARROW
        if float(h.tensor) in (0.0, 1.0) and not is_statistic(case, h)
    ]
    return (*filter(None, cast), *kept)


def _lost_in_cast(node: Node) -> str | None:
    given, made = node.given.get("self"), node.outputs[0] if node.outputs else None
    if node.base != "_to_copy" or given is None or made is None or given.count != 1:
        return None
    dtype: torch.dtype = getattr(torch, made.dtype)
    if dtype not in NARROW or given.min is None or made.min not in (0.0, 1.0) or given.min == made.min:
        return None
    return CAST.say(value=given.min, held=made.min, dtype=_name(dtype))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
