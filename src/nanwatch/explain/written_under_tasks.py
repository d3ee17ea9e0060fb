"""Memory that a task in another thread could reach, written by this thread before the task had ended.

The version that each write left says when it was: above the one at which the task was handed over, and not
above the one at which it had ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from nanwatch.watching.stack import Stack
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, tensors_in
from nanwatch.watching.tasks_under_way import Reached, Task, recent_tasks
from nanwatch.watching.torch_functions import changes_its_input, written_to

if TYPE_CHECKING:
    from nanwatch.explain.case import Case


@dataclass(frozen=True)
class WrittenUnder:
    task: Task
    tensor: torch.Tensor
    by: Stack
    """Where this thread wrote."""


def written_under_a_task(case: Case) -> WrittenUnder | None:
    """Of the tasks whose result the step read, one that lost its memory to a write of this thread."""
    read = {key_of(t) for e in case.tape.entries for t, _ in e.versions}
    if case.birth is not None:
        read |= {o.key for o in case.birth.op.inputs}
    for task in recent_tasks():
        made = [t for t in (reference() for reference in task.made) if t is not None]
        if any(key_of(t) in read for t in made):
            found = next(_writes_under(case, task), None)
            if found is not None:
                return found
    return None


def _writes_under(case: Case, task: Task) -> Iterator[WrittenUnder]:
    entries = [e for tape in (*case.trouble.earlier, case.tape) for e in tape.entries]
    writes = [e for e in entries if e.kind == "write" or changes_its_input(e.call, e.kwargs)]
    for reached in task.reached:
        tensor = reached.tensor()
        if tensor is not None:
            key = key_of(tensor)
            yield from (WrittenUnder(task, tensor, e.stack) for e in writes if _came_between(e, key, reached))


def _came_between(entry: Entry, key: int, reached: Reached) -> bool:
    if reached.at_end is None or all(
        key_of(t) != key for t in tensors_in(written_to(entry.args, entry.kwargs))
    ):
        return False
    left = [version for tensor, version in (*entry.versions, *entry.made) if key_of(tensor) == key]
    return any(reached.version < version <= reached.at_end for version in left)
