"""What belongs to the program stays as it is, whatever the code that is run again writes into it.

A hook may update a weight in the middle of a backward, a model may write into a tensor that it keeps: such
memory is copied before the first write and put back afterwards. So is torch's count of its writes: autograd
goes by it, and so does the search for a thread that writes behind our back. Memory that the replay itself has
allocated is its own.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.multiprocessing.reductions import StorageWeakRef

from nanwatch.replay.op_facts import output_tensors
from nanwatch.watching.storages import Storages, key_of


class Untouched:
    """The memory of the program, during one replay."""

    def __init__(self) -> None:
        self._own: Storages[bool] = Storages()
        self._kept: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self.stands_for: dict[int, int] = {}
        """Memory of a copy that was made for the replay -> the memory of the program it is a copy of."""
        self._addresses: list[StorageWeakRef] = []
        """Of those: so none is used again for something else, also when the copy is gone."""
        self._versions: dict[int, _unsafe_preserve_version_counter] = {}
        self._gradients: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}

    def own(self, tensor: torch.Tensor, of: torch.Tensor | None = None) -> torch.Tensor:
        """A tensor that was made for the replay; `of`: the one of the program it stands in for."""
        self._own.put(tensor, True)
        if of is not None:
            self.stands_for[key_of(tensor)] = key_of(of)
            with contextlib.suppress(NotImplementedError, RuntimeError):  # it has no memory of its own
                self._addresses.append(StorageWeakRef(tensor.untyped_storage()))
        return tensor

    def about_to_write(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            if self._own.get(tensor) or tensor.device.type == "meta":
                continue
            if id(tensor) not in self._versions and not tensor.is_inference():
                self._versions[id(tensor)] = _unsafe_preserve_version_counter(tensor)
            key = key_of(tensor)
            if key not in self._kept:
                try:
                    storage = tensor.untyped_storage()
                    self._kept[key] = (storage, storage.clone())
                except (NotImplementedError, RuntimeError):
                    continue  # it has no memory of its own

    def made(self, outputs: Any, inputs: list[tuple[str, torch.Tensor]]) -> None:
        """Outputs that are not inputs written to, or views of them, are new memory."""
        given = {key_of(tensor) for _, tensor in inputs}
        for tensor in output_tensors(outputs):
            if key_of(tensor) not in given:
                self._own.put(tensor, True)

    def keep_gradients(self, parameters: list[torch.Tensor]) -> None:
        for parameter in parameters:
            if parameter.is_leaf:
                self._gradients.setdefault(id(parameter), (parameter, parameter.grad))

    def put_back(self) -> None:
        for storage, copy in self._kept.values():
            storage.copy_(copy, non_blocking=False)
        for version in self._versions.values():
            version.__exit__()
        for parameter, gradient in self._gradients.values():
            if parameter.grad is not gradient:
                parameter.grad = gradient
