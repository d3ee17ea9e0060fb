"""What the program calls its tensors, and who of its own code wrote into them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from nanwatch.replay.again import call_again
from nanwatch.replay.trace import Op
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite
from nanwatch.watching.stack import Stack
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, tensors_in
from nanwatch.watching.torch_functions import written_to
from nanwatch.watching.trouble import Trouble


@dataclass(frozen=True)
class Weight:
    name: str
    module: str


class Roles:
    """What the program calls the tensors: parameters and buffers of its modules, arguments of its calls."""

    def __init__(self, trouble: Trouble) -> None:
        self._tape = trouble.tape
        self._entries = list(trouble.tape.entries)
        if trouble.last_update is None:  # else the update has overwritten what was done before it
            self._entries = [e for tape in trouble.earlier for e in tape.entries] + self._entries
        self._weights: dict[int, Weight] = {}
        for entry in trouble.tape.entries:
            if isinstance(entry.call, nn.Module):
                self._note_module(entry.call)
        for group in trouble.optimizer.param_groups if trouble.optimizer is not None else ():
            for index, parameter in enumerate(group["params"]):
                self._weights.setdefault(key_of(parameter), Weight(f"parameter {index}", ""))

    def _note_module(self, root: nn.Module) -> None:
        for name, tensor in [*root.named_parameters(), *root.named_buffers()]:
            shown = name.replace("_orig_mod.", "")
            self._weights.setdefault(key_of(tensor), Weight(shown, shown.rpartition(".")[0]))

    def weight(self, key: int) -> Weight | None:
        return self._weights.get(key)

    def argument_name(self, key: int) -> str | None:
        for entry in self._tape.entries:
            if entry.kind == "module":
                for index, tensor in enumerate(tensors_in((entry.args, entry.kwargs))):
                    if key_of(tensor) == key:
                        return f"input {index} of {type(entry.call).__name__}"
        return None

    def computed(self, key: int) -> bool:
        """Whether a call on the tape made this memory: a model or a compiled function, not data."""
        return any(
            key_of(tensor) == key
            for entry in self._tape.entries
            if entry.kind in ("module", "apply") or getattr(entry.call, "__name__", "") == "grad"
            for tensor in tensors_in(entry.outputs)
        )

    def written_outside(self, key: int) -> bool:
        return self._last_entry(key) is not None

    def _last_entry(self, key: int) -> Entry | None:
        """The last call of the program's own code that wrote into this memory."""
        for entry in reversed(self._entries):
            if entry.kind == "write" and any(
                key_of(t) == key for t in tensors_in(written_to(entry.args, entry.kwargs))
            ):
                return entry
            if entry.kind == "op" and any(key_of(t) == key for t in tensors_in(entry.outputs)):
                return entry
        return None

    def origin(self, key: int, depth: int = 0) -> Op | None:
        """The op of the program's own code that first made a bad value which came to be in this memory:
        follow the tape backwards by value, then make that one call again, traced, on copies."""
        entry = self._last_entry(key)
        if entry is None or depth > 100:
            return None
        target = {key_of(t) for t in tensors_in(entry.outputs)} if entry.kind == "op" else {key}
        for tensor in tensors_in((entry.args, entry.kwargs)):
            if key_of(tensor) not in target and measurable(tensor) and not is_finite(tensor):
                return self.origin(key_of(tensor), depth + 1)
        before = self._entries[: self._entries.index(entry)]
        return call_again(entry, self._tape.step, any(e.kind == "module" for e in before))

    def last_write(self, key: int) -> Stack | None:
        entry = self._last_entry(key)
        return None if entry is None else entry.stack

    def first_use(self, key: int) -> Stack:
        for entry in self._tape.entries:
            if any(key_of(t) == key for t in tensors_in((entry.args, entry.kwargs))):
                return entry.stack
        return ()
