"""What keeps a fact about the birth op from being the whole story: reasons why its operand may have been
what it was that are another cause's business. With any of them, what the op did is likely the cause, not
proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nanwatch.explain.experiments.one_worker import others
from nanwatch.explain.provenance import Seen, is_state, negative_index
from nanwatch.explain.rounded_constants import rounded_constants
from nanwatch.explain.text import Text
from nanwatch.watching.stack import is_library
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import tensors_in, tensors_of_call, version_of
from nanwatch.watching.worker_threads import has_pools

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

HALF = Text("half precision was at work", "其中用到了半精度")
NOT_AGAIN = Text("the replay does not show it", "重放时没有再现")
CHANGED = Text("memory that the step was given has changed since", "这一步所用的内存此后被改动过")
STATE = Text("the operand is a weight or a buffer as it stands", "操作数就是某个权重或缓冲区本身")
INDEX = Text("the operand was looked up with a negative index", "操作数是用负索引取出的")
UPDATE = Text(
    "the update is torch's own, or half precision was at work in the step",
    "更新由 torch 自己完成，或这一步用到了半精度",
)
THREADS = Text(
    "other threads of the program ran beside this one, and the operand comes from memory that they can reach",
    "程序的其他线程与本线程同时运行，而操作数来自它们也能访问的内存",
)
DISTRIBUTION = Text("it happened inside a distribution of torch", "发生在 torch 的分布内部")
HALVES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def doubts(case: Case, found: Seen, operand: str) -> list[str]:
    """In words, for the evidence; empty when the operand's value is a fact of this step and nothing else."""
    reasons = []
    if narrow_before(found, operand) and (
        case.outcome("float32").finite is not False or rounded_constants(case, found.birth, operand)
    ):
        reasons.append(HALF)
    if not happens_again(case, found):
        reasons.append(NOT_AGAIN)
    if changed_since(case):
        reasons.append(CHANGED)
    node = found.node
    if node is not None and is_state(case, found.lineage, node, operand):
        reasons.append(STATE)
    if node is not None and negative_index(found.lineage, node, (operand,)) is not None:
        reasons.append(INDEX)
    if case.phase == "optimizer" and (_by_library(case, "optim") or half_step(case)):
        reasons.append(UPDATE)
    if _by_library(case, "distributions"):
        reasons.append(DISTRIBUTION)
    if (others(case) or has_pools()) and _within_reach_of_others(case, found, operand):
        reasons.append(THREADS)
    return [reason.say() for reason in reasons]


def _within_reach_of_others(case: Case, found: Seen, operand: str) -> bool:
    """Whether the operand hangs on a tensor that is neither a weight nor what a model was called with. Data
    may come from any thread."""
    if found.node is None or case.phase == "data":
        return True
    mine = {key_of(t) for m in case.models for t in (*m.parameters(), *m.buffers())}
    mine |= {key_of(t) for e in case.model_calls for t in tensors_in((e.args, e.kwargs))}
    return any(key_of(t) not in mine for t in found.lineage.leaves_of(found.node, operand))


def certainty(case: Case, found: Seen, open_questions: list[str]) -> str:
    """Of a cause that only says what the op did, with these questions open."""
    if not happens_again(case, found):
        return "possible"
    return "likely" if open_questions else "proved"


def happens_again(case: Case, found: Seen) -> bool:
    """Whether a replay shows the birth, where a replay can: not that of an earlier step."""
    earlier = found.birth.op.step < case.trouble.step
    if earlier or case.located.by == "replay" or case.phase in ("data", "weights", "optimizer"):
        return case.reproduced
    return found.node is not None


def narrow_before(found: Seen, operand: str) -> bool:
    """Whether the op, or what made its operand, worked in half precision."""
    if found.birth.narrow:
        return True
    value = found.birth.arguments.get(operand)
    if isinstance(value, torch.Tensor) and str(value.dtype).removeprefix("torch.") in HALVES:
        return True
    if found.node is None:
        return False
    maker = found.lineage.maker(found.node, operand)
    return maker is not None and any(n.dtype in HALVES for n in maker.given.values())


def half_step(case: Case) -> bool:
    """Whether something of the step ran in half precision."""
    return any(on for e in case.tape.entries for _, on, _ in e.context.autocast) or any(
        p.dtype in (torch.float16, torch.bfloat16) for m in case.models for p in m.parameters()
    )


def changed_since(case: Case) -> bool:
    """Whether a tensor that the step was given is not what it was, and nobody of this program's own calls
    accounts for it."""
    tape = case.tape
    written = {id(t) for e in tape.entries if e.kind == "write" for t in tensors_of_call(e.args, e.kwargs)}
    for entry in tape.entries:
        for tensor, version in entry.versions:
            if version_of(tensor) == version or (id(tensor), version) in tape.saved or id(tensor) in written:
                continue
            if tensor.requires_grad or tensor._base is not None:
                continue  # an update, or a view of something larger
            return True
    return False


def _by_library(case: Case, part: str) -> bool:
    """Whether the innermost frame that did the arithmetic is in a part of torch, below the program's line."""
    if case.birth is None:
        return False
    for code, _ in case.birth.op.stack:
        if not is_library(code.co_filename):
            return False
        if f"/torch/{part}/" in code.co_filename.replace("\\", "/"):
            return True
    return False
