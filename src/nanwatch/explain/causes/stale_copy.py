"""stale-copy: an offloaded, tied or cached tensor is not the one that was updated."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import torch
from torch import nn

from nanwatch.explain.case import Case, runs_finite
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.instead import with_values
from nanwatch.explain.lineage import Lineage, Node
from nanwatch.explain.mechanism import DIVIDE_BY_ZERO, INVALID_DOMAIN, LOG_OF_ZERO
from nanwatch.explain.remedies import offer
from nanwatch.explain.state import Held, all_entries, line_of, makes, of_modules, short, writes_to
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.tensors import is_finite
from nanwatch.watching.randomness import drawn_again
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, map_tensors, tensors_in
from nanwatch.watching.torch_functions import changes_its_input, written_to

PAGE = Page(
    Text("Stale copy", "过期的副本"),
    Text(
        "There are two of a tensor, or one is computed from the other, and only one of them was updated: "
        "the buffers of an averaged model, the master weights on the host, a norm or a table that is "
        "computed once from weights that are loaded later, a cache whose mask is not the one of its "
        "contents, an activation kept for the backward in a buffer that is used again too early. The wrong "
        "one is used, and often it still holds the zeros it was made with.",
        "同一个张量有两份，或者一个由另一个算出，而只有其中一个被更新：平均模型的缓冲区、主机上的主权重、在"
        "加载权重之前就算好的范数或表、掩码与内容不一致的缓存、为反向传播保存却被过早重用的缓冲区。"
        "被使用的是错的那一份，里面常常还是初始的零。",
    ),
    Text(
        "The two differ, and the step with the right values in the place of the wrong runs finite.",
        "两份的值不同，而把错的值换成对的值后，这一步结果有限。",
    ),
    Text(
        "Copy buffers along with parameters (`load_state_dict`, `AveragedModel(use_buffers=True)`), "
        "recompute what is derived from weights after loading them, take master copies last, tie weights "
        "again after loading.",
        "复制参数时连同缓冲区一起复制（`load_state_dict`、`AveragedModel(use_buffers=True)`），"
        "加载权重后重新计算由其导出的量，最后再取主权重副本，加载后重新绑定权重。",
    ),
    ("fwd_averaged_model", "fwd_cosine_head", "fwd_host_master_weights"),
)
TWIN = Text(
    "{name} holds {value}; the same tensor of another copy of this model holds {other}, and with that the "
    "step runs finite.",
    "{name} 的值为 {value}；该模型另一份副本中的同名张量为 {other}，换成它后这一步结果有限。",
)
DERIVED = Text(
    "{name} was computed at {line} from a tensor that has been changed since ({changed}); computed again it "
    "is {other} instead of {value}, and with that the step runs finite.",
    "{name} 在 {line} 处由一个张量算出，而那个张量后来又被改动（{changed}）；重新计算得到 {other} 而不是 "
    "{value}，换成它后这一步结果有限。",
)
OVERWRITTEN = Text(
    "{name} held {other} until {line} overwrote it with {value} from a copy that was taken before {name} "
    "was last changed ({changed}); with {other} the step runs finite.",
    "{name} 原为 {other}，在 {line} 处被一份副本的 {value} 覆盖，而那份副本是在 {name} 最后一次改动（"
    "{changed}）之前取的；换回 {other} 后这一步结果有限。",
)


SAVED = Text(
    "{count} tensor(s) that hooks of the program saved for the backward came back with other values than "
    "they had: what they were kept in was written again before it was read.",
    "程序的钩子为反向传播保存的 {count} 个张量取回时已不是原来的值：存放它们的内存在读取之前被再次写入。",
)
DEGENERATE = (DIVIDE_BY_ZERO, LOG_OF_ZERO, INVALID_DOMAIN)
FEWEST = 3
"""Tensors that a model must have to be told from any other."""


@dataclass(frozen=True)
class _Newer:
    """What a tensor should have held."""

    held: Held
    value: torch.Tensor
    sentence: Text
    line: str = ""
    changed: str = ""


def weigh(case: Case) -> Claim | Against | None:
    if case.birth is None or case.phase not in ("forward", "loss", "backward"):
        return None
    kept = case.outcome("kept-as-saved")
    if kept.finite:
        return Claim("proved", SAVED.say(count=kept.value), (kept.text,), 3.5)
    suspects = _suspects(case)
    for held in suspects:
        for newer in (_derived(case, held), _overwritten(case, held), _in_a_twin(case, held)):
            if newer is not None and runs_finite(with_values(case, [(held, newer.value)])):
                return Claim("proved", _said(newer), (), 3.5)
    return None


def _said(newer: _Newer) -> str:
    return newer.sentence.say(
        name=newer.held.name,
        value=_shown(newer.held.tensor),
        other=_shown(newer.value),
        line=newer.line,
        changed=newer.changed,
    )


def _shown(tensor: torch.Tensor) -> str:
    flat = tensor.detach().reshape(-1)[:3].double().tolist()
    text = ", ".join(short(v) for v in flat)
    return text if tensor.numel() == 1 else f"[{text}{', …' if tensor.numel() > 3 else ''}]"


def _suspects(case: Case) -> list[Held]:
    """Weights and buffers that the guilty operand is made of; all that the birth op hangs on if none is
    named."""
    birth = case.birth
    assert birth is not None
    lineage = case.lineage
    node = lineage.node_of(birth.op)
    if node is None:
        return []
    if node.phase == "backward":
        node = lineage.forward_of(node) or node
    operand = case.mechanism.operand
    near = _leaves(lineage, node, operand if any(n == operand for n, _, _ in node.inputs) else None)
    return [h for h in of_modules(case.models) if h.key in near]


def _leaves(lineage: Lineage, node: Node, operand: str | None, within: int = 12) -> set[int]:
    found: set[int] = set()
    waiting = [(s, k) for n, s, k in node.inputs if operand is None or n == operand]
    seen: set[int] = set()
    while waiting:
        source, key = waiting.pop(0)
        found.add(key)
        if source is not None and source not in seen and source in lineage.nodes and len(seen) < within:
            seen.add(source)
            waiting += [(s, k) for _, s, k in lineage.nodes[source].inputs]
    return found


# Computed from something that has changed since


def _derived(case: Case, held: Held) -> _Newer | None:
    maker = next(writes_to(case, held.key), None)
    if maker is None or maker.kind != "op" or _writes(maker, held.key):
        return None
    changed: list[Entry] = []
    try:
        with torch.no_grad():
            value = _computed_now(all_entries(case), held.tensor.detach(), changed)
    except Exception:
        return None
    if (
        not changed
        or value.shape != held.tensor.shape
        or torch.equal(value, held.tensor)
        or not is_finite(value)
    ):
        return None
    return _Newer(held, value, DERIVED, line_of(maker.stack), line_of(changed[0].stack))


def _computed_now(
    entries: list[Entry], tensor: torch.Tensor, changed: list[Entry], depth: int = 10
) -> torch.Tensor:
    """What the tensor would hold if the calls that made it were made now. `changed` collects the calls that
    have since written into what it was computed from."""
    key = key_of(tensor)
    at = next((i for i in reversed(range(len(entries))) if _touches(entries[i], key)), None)
    if at is None or depth == 0 or entries[at].kind != "op" or _writes(entries[at], key):
        if at is not None and _writes(entries[at], key):
            changed.append(entries[at])
        return tensor
    maker = entries[at]
    sources = tensors_in((maker.args, maker.kwargs))
    later = [e for t in sources for e in entries[at + 1 :] if _writes(e, key_of(t))]
    deeper: list[Entry] = []

    def now(source: torch.Tensor) -> torch.Tensor:
        return _computed_now(entries, source, deeper, depth - 1).detach().clone()

    args, kwargs = map_tensors(maker.args, now), map_tensors(maker.kwargs, now)
    changed += later or [e for e in deeper if entries.index(e) > at]
    with drawn_again(maker.rng, maker.generators):
        made = tensors_in(maker.call(*args, **kwargs))
    fitting = [n for n, w in zip(made, tensors_in(maker.outputs), strict=False) if key_of(w) == key]
    return fitting[0] if fitting else tensor


def _touches(entry: Entry, key: int) -> bool:
    return _writes(entry, key) or (entry.kind == "op" and makes(entry, key))


def _writes(entry: Entry, key: int) -> bool:
    if entry.kind != "write" and not changes_its_input(entry.call, entry.kwargs):
        return False
    return any(key_of(t) == key for t in tensors_in(written_to(entry.args, entry.kwargs)))


# Overwritten by an older copy of itself


def _overwritten(case: Case, held: Held) -> _Newer | None:
    entries = all_entries(case)
    last = next((e for e in writes_to(case, held.key) if _writes(e, held.key)), None)
    if last is None or last.before is None or last.before.shape != held.tensor.shape:
        return None
    at = entries.index(last)
    sources = [t for t in tensors_in((last.args[1:], last.kwargs)) if key_of(t) != held.key]
    for source in sources:
        taken = _taken_from(entries[:at], source, held)
        if taken is None:
            continue
        changed = next((e for e in entries[entries.index(taken) + 1 : at] if _writes(e, held.key)), None)
        if changed is not None and not torch.equal(last.before, held.tensor):
            return _Newer(held, last.before, OVERWRITTEN, line_of(last.stack), line_of(changed.stack))
    return None


def _taken_from(entries: list[Entry], source: torch.Tensor, held: Held) -> Entry | None:
    """The call by which `source` was copied from the tensor itself."""
    key = key_of(source)
    for _ in range(8):
        made = next((e for e in reversed(entries) if e.kind == "op" and makes(e, key)), None)
        if made is None:
            return None
        given = tensors_in((made.args, made.kwargs))
        if any(key_of(t) == held.key for t in given):
            return made
        if not given or key_of(given[0]) == key:
            return None
        key = key_of(given[0])
    return None


# Another copy of the model


def _in_a_twin(case: Case, held: Held) -> _Newer | None:
    """The tensor of the same name in another living module that is built alike, and that was written more
    often. Only where this one still holds the zeros it was made with: weights that differ otherwise may
    have been trained."""
    if case.mechanism.kind not in DEGENERATE:
        return None
    mine = next((m for m in case.models if any(h.tensor is held.tensor for h in of_modules([m]))), None)
    if mine is None:
        return None
    for other in _built_alike(mine):
        for twin in of_modules([other]):
            if twin.name != held.name or twin.key == held.key:
                continue
            if bool((held.tensor.detach() != 0).any()) or not bool((twin.tensor.detach() != 0).any()):
                continue
            value = twin.tensor.detach().to(held.tensor.dtype)
            if is_finite(value) and not torch.equal(value.cpu(), held.tensor.detach().cpu()):
                return _Newer(held, value.to(held.tensor.device), TWIN)
    return None


def _built_alike(model: nn.Module) -> list[nn.Module]:
    shape = _shape_of(model)
    if len(shape) < FEWEST:
        return []  # single layers are alike by chance
    found = [m for m in gc.get_objects() if type(m) is type(model) and m is not model]
    return [m for m in found if _shape_of(m) == shape]


def _shape_of(model: nn.Module) -> list[tuple[str, tuple[int, ...], str]]:
    return [(h.name, tuple(h.tensor.shape), h.kind) for h in of_modules([model])]


def remedies(case: Case) -> list[Remedy]:
    if case.outcome("kept-as-saved").finite:
        return offer(case, "own-buffer")
    return offer(case, "refresh-copy", "synchronise-copy", "clamp-divisor")
