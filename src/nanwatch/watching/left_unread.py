"""What nobody reads of what a call returned: rows of padding, the values where only the shape is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from nanwatch.tensors import is_finite
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, Tape, given_to, tensors_in, version_of
from nanwatch.watching.torch_functions import changes_its_input, written_to

SELECTS = frozenset(
    "__getitem__ where masked_select index_select gather take take_along_dim narrow select masked_fill "
    "index_fill split chunk unbind tensor_split cross_entropy nll_loss pack_padded_sequence "
    "_pack_padded_sequence".split()
)
"""Functions that can leave entries out: by an index, a mask, a label that is ignored, lengths."""
HANDS_ON = frozenset(
    "__get__ to cpu cuda float double half bfloat16 type detach clone contiguous view reshape flatten "
    "squeeze unsqueeze transpose permute t swapaxes movedim expand".split()
)
ALLOCATES = frozenset("empty empty_like empty_strided new_empty new_empty_strided".split())


def since(call: Entry, tape: Tape) -> list[Entry]:
    """What the program has called after it."""
    return tape.entries[tape.entries.index(call) + 1 :] if call in tape.entries else []


def is_left_unread(call: Entry, bad: list[torch.Tensor], tape: Tape) -> bool:
    """Whether the program has since taken good values out of `bad`, and done nothing else with it."""
    spoilt, waiting, taken = {id(t) for t in bad}, set[int](), False
    for entry in since(call, tape):
        given = {id(t) for t in given_to(entry)} & spoilt
        if not given or _only_writes(entry, given):
            continue
        if not _may_leave_out(entry):
            return False
        still_bad = {id(t) for t, _ in entry.made if not is_finite(t)}
        spoilt |= still_bad
        waiting = (waiting - given) | still_bad  # somebody must take good values out of those, too
        taken = taken or not still_bad
    return taken and not waiting


def is_made_finite(bad: list[torch.Tensor], after: list[Entry]) -> bool:
    """Whether the program has since made finite numbers of all of `bad`: has bounded it, replaced it, or left
    it out inside a model. Whole numbers do not count: the place of the largest NaN is one, too."""
    dealt_with = {id(t): False for t in bad}
    for entry in after:
        given = {id(t) for t in given_to(entry)} & dealt_with.keys()
        made = [t for t, _ in entry.made if t.is_floating_point() or t.is_complex()]
        if not given or not made or _only_writes(entry, given):
            continue
        dealt_with.update(dict.fromkeys(given, True))
        dealt_with.update((id(t), False) for t in made if not is_finite(t))
    return all(dealt_with.values())


def _may_leave_out(entry: Entry) -> bool:
    """A loss may, too: what is finite though it was given NaN has not looked there. An infinity may have been
    turned into a number."""
    if entry.kind == "module":
        return entry.phase == "loss" and not any(_holds_infinities(t) for t in given_to(entry))
    name = getattr(entry.call, "__name__", "")
    return name in SELECTS or name in HANDS_ON


def _holds_infinities(tensor: torch.Tensor) -> bool:
    return not is_finite(tensor) and bool(tensor.isinf().any())


def _only_writes(entry: Entry, spoilt: set[int]) -> bool:
    """Into it, and nothing of it elsewhere."""
    if not changes_its_input(entry.call, entry.kwargs):
        return False
    written = {id(t) for t in tensors_in(written_to(entry.args, entry.kwargs))}
    return spoilt <= written


def is_asked_for_its_shape(call: Entry, tape: Tape, earlier: Iterable[Tape]) -> bool:
    """Whether it was given memory that nobody has written, and nobody has computed anything with what it
    returned. (Deterministic algorithms fill such memory with NaN.)"""
    made = {id(t) for t, _ in call.made}
    if any(id(t) in made for entry in since(call, tape) for t in given_to(entry)):
        return False
    unwritten = dict(pair for each in (*earlier, tape) for pair in _unwritten(each))
    return any(unwritten.get(key_of(t)) == version_of(t) for t in tensors_in((call.args, call.kwargs)))


def _unwritten(tape: Tape) -> Iterator[tuple[int, int]]:
    """Memory that was only allocated -> its version then."""
    for entry in tape.entries:
        if getattr(entry.call, "__name__", "") in ALLOCATES:
            yield from ((key_of(t), version) for t, version in entry.made)
