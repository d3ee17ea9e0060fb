"""What the transforms of torch.func (`grad`, `jacrev`, …) differentiate while they run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch._functorch.eager_transforms as transforms

from nanwatch.watching.tape import tensors_in


@contextlib.contextmanager
def noting_inner_losses(losses: list[torch.Tensor]) -> Iterator[None]:
    """Note what the transforms of torch.func differentiate, below their wrappers."""
    original = transforms._autograd_grad

    def noting(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        losses.extend(_unwrapped(t) for t in tensors_in(outputs))
        return original(outputs, *args, **kwargs)

    transforms._autograd_grad = noting
    try:
        yield
    finally:
        transforms._autograd_grad = original


def _unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor
