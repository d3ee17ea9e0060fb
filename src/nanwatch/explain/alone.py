"""While one rank looks for the cause of its bad step, the others wait: nothing here may wait for them."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from nanwatch.watching.ranks import NeedsOtherRanks, is_collective


class Alone(TorchDispatchMode):
    """An op that needs other ranks fails under this mode, before it sends anything. One on a tensor that is
    spread over ranks fails too: what it does inside, no mode sees."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if is_collective(function) or any(t.__module__.startswith("torch.distributed") for t in types):
            raise NeedsOtherRanks(function)
        return function(*args, **(kwargs or {}))
