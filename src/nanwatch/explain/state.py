"""What outlives a step: weights, buffers and the optimizer's state; and what is on record about who wrote
them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite
from nanwatch.watching.attached import attached_to
from nanwatch.watching.last_updates import LastUpdate
from nanwatch.watching.stack import Stack, user_frame
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, tensors_in, version_of
from nanwatch.watching.torch_functions import changes_its_input, written_to

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

PARAMETER, BUFFER, ATTACHED, STATE = "parameter", "buffer", "attached", "state"
ALLOCATING = frozenset(
    "empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize_".split()
)
"""Functions of torch that hand out memory as it was found."""


@dataclass(frozen=True)
class Held:
    """One tensor that is kept from step to step."""

    name: str
    """ "encoder.0.weight", "exp_avg_sq of 0.weight"."""
    tensor: torch.Tensor
    kind: str
    owner: nn.Module | None = None
    """Of a buffer or a parameter: the module that has it."""
    attribute: str = ""
    """What that module, or the optimizer, calls it."""
    parameter: torch.Tensor | None = None
    """Of the optimizer's state: the parameter it belongs to."""

    @property
    def key(self) -> int:
        return key_of(self.tensor)


def optimizer_of(case: Case) -> Any:
    """That of the update that is to blame: of two optimizers the other one may be about to step. Else that of
    the step, or of the last update. None if there is none."""
    last, update = case.trouble.last_update, update_to_blame(case)
    of_the_last = None if last is None else last.optimizer()
    of_that = None if update is None else update.optimizer()
    return of_that or case.trouble.optimizer or of_the_last


def update_to_blame(case: Case) -> LastUpdate | None:
    """The update in which it was born."""
    if case.located.update is not None:
        return case.located.update
    made = case.trouble.last_updates if case.phase == "optimizer" else ()
    return next((update for update in made if update.step == case.located.step), None)


def of_modules(models: list[nn.Module]) -> list[Held]:
    """The parameters and buffers of these models, each once."""
    found: dict[int, Held] = {}
    for model in models:
        for path, module in model.named_modules():
            for kind, tensors in ((PARAMETER, module._parameters), (BUFFER, module._buffers)):
                for name, tensor in tensors.items():
                    if tensor is not None and measurable(tensor):
                        full = f"{path}.{name}" if path else name
                        found.setdefault(
                            id(tensor), Held(full.replace("_orig_mod.", ""), tensor, kind, module, name)
                        )
    return list(found.values())


def of_optimizer(case: Case) -> list[Held]:
    """The tensors in the state of the optimizer."""
    optimizer = optimizer_of(case)
    if optimizer is None:
        return []
    names = {id(h.tensor): h.name for h in of_modules(case.models)}
    found = []
    for parameter, state in optimizer.state.items():
        if not isinstance(state, dict):
            continue
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and measurable(value):
                owner = names.get(id(parameter), "a parameter")
                found.append(Held(f"{name} of {owner}", value, STATE, None, str(name), parameter))
    return found


def held(case: Case) -> list[Held]:
    return [*of_modules(case.models), *of_optimizer(case)]


def bad_weights(case: Case) -> list[Held]:
    """The parameters, buffers and attached weights that are not finite now."""
    return [h for h in [*of_modules(case.models), *attached(case)] if not is_finite(h.tensor)]


def attached(case: Case) -> list[Held]:
    """The weights that the models hold without having registered them."""
    found = {id(a.tensor): a for m in case.models for a in attached_to(m, case.trouble.arrivals)}
    return [
        Held(a.name, a.tensor, ATTACHED, a.module, a.name.rpartition(".")[2])
        for a in found.values()
        if measurable(a.tensor)
    ]


def count_bad(tensor: torch.Tensor) -> int:
    return int((~torch.isfinite(tensor.detach())).sum())


# Who wrote


def all_entries(case: Case) -> list[Entry]:
    """The calls on record, oldest first: of this step and of what is kept of those before."""
    return [e for tape in (*case.trouble.earlier, case.tape) for e in tape.entries]


def writes_to(case: Case, key: int) -> Iterator[Entry]:
    """The calls of the program's own code that made or wrote this memory, the last first; not those that only
    made a view of it."""
    for entry in reversed(all_entries(case)):
        if entry.kind == "write" or changes_its_input(entry.call, entry.kwargs):
            if any(key_of(t) == key for t in tensors_in(written_to(entry.args, entry.kwargs))):
                yield entry
        elif entry.kind in ("op", "apply") and makes(entry, key):
            yield entry


def makes(entry: Entry, key: int) -> bool:
    """Whether a call returned this memory, and was not given it."""
    if all(key_of(t) != key for t in tensors_in(entry.outputs)):
        return False
    return all(key_of(t) != key for t in tensors_in((entry.args, entry.kwargs)))


def allocation_of(case: Case, tensor: torch.Tensor) -> Entry | None:
    """The call that allocated this tensor's memory, if no call on record has written into it since, and it
    was not filled elsewhere (a file, a loader)."""
    key, arrivals = key_of(tensor), case.trouble.arrivals
    if arrivals is not None and arrivals.get(tensor) is not None:
        return None
    entry = next(writes_to(case, key), None)
    if entry is None or getattr(entry.call, "__name__", "") not in ALLOCATING:
        return None
    return entry if _asked_for_memory(entry) else None


def _asked_for_memory(entry: Entry) -> bool:
    """Not an empty shell that is given the memory of a file afterwards."""
    sizes = [a for a in entry.args if isinstance(a, (int, tuple, list))]
    return all(t.numel() for t, _ in entry.made) and all(size not in (0, (0,), [0]) for size in sizes)


def is_statistic(case: Case, held: Held) -> bool:
    """Whether calls of the model change this buffer, now or in the steps before."""
    if held.kind != BUFFER or held.owner is None:
        return False
    if isinstance(held.owner, nn.modules.batchnorm._NormBase):
        return True
    if any(o is held.owner and n == held.attribute for e in all_entries(case) for o, n, _ in e.buffers):
        return True
    return version_of(held.tensor) > 2 and allocation_of(case, held.tensor) is None


def found_there(case: Case, held: Held) -> list[torch.Tensor]:
    """What the calls of the step found in a buffer that they change."""
    entries = case.tape.entries
    return [value for e in entries for o, n, value in e.buffers if o is held.owner and n == held.attribute]


def came_bad(case: Case, held: Held) -> bool:
    """Whether no step can have spoiled it: it was bad when its model was first called."""
    record = case.trouble.fingerprints
    if record is not None and held.name in record.bad_at_first:
        return True
    if case.history or case.trouble.last_update is not None or case.trouble.step > 0:
        return False
    return not any(is_finite(value) for value in found_there(case, held)[:1])


def statistics(case: Case) -> list[Held]:
    return [h for h in of_modules(case.models) if is_statistic(case, h)]


def line_of(stack: Stack) -> str:
    """ "train.py:12", or nothing."""
    frame = user_frame(stack)
    if frame is None:
        return ""
    return f"{frame.file.rsplit('/', 1)[-1]}:{frame.line}"


def born_at(case: Case) -> str:
    birth = case.located.birth
    if birth.file is None:
        return ""
    return f"{birth.file.rsplit('/', 1)[-1]}:{birth.line}"


def short(value: float) -> str:
    return f"{value:.4g}"
