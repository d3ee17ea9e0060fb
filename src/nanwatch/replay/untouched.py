"""What belongs to the program stays as it is, whatever the code that is run again writes into it.

A hook may update a weight in the middle of a backward, a model may write into a tensor that it keeps: such
memory is copied before the first write and put back afterwards. Memory that the replay itself has allocated
is its own.
"""

from __future__ import annotations

from typing import Any

import torch

from nanwatch.replay.op_facts import output_tensors
from nanwatch.watching.storages import Storages, key_of


class Untouched:
    """The memory of the program, during one replay."""

    def __init__(self) -> None:
        self._own: Storages[bool] = Storages()
        self._kept: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._gradients: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}

    def own(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that was made for the replay."""
        self._own.put(tensor, True)
        return tensor

    def about_to_write(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            key = key_of(tensor)
            if key not in self._kept and not self._own.get(tensor) and tensor.device.type != "meta":
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
        for parameter, gradient in self._gradients.values():
            if parameter.grad is not gradient:
                parameter.grad = gradient
