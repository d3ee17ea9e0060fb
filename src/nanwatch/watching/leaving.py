"""nanwatch has failed on this rank: where the other ranks ask at their next update, they hear of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from nanwatch.watching.wrapping import Wrappers


class Leaving:
    """Follows updates until the others have been told. They ask before an update, and after a step of a
    GradScaler that made none; `obey`: where an update is judged on the device, nobody can be told."""

    def __init__(
        self,
        tell: Callable[[], None],
        obey: Callable[[Optimizer], None],
        on_device: Callable[[Optimizer], bool],
    ) -> None:
        self._tell, self._obey, self._on_device = tell, obey, on_device
        self._over = self._scaling = False
        self._handle = register_optimizer_step_pre_hook(self._update_begins)
        self._wrappers = Wrappers()
        self._wrappers.put(GradScaler, "step", self._followed(GradScaler.__dict__["step"]))

    def end(self) -> None:
        self._over = True
        self._handle.remove()
        self._wrappers.take_off()

    def _update_begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._on_device(optimizer) and not self._scaling:
            self._obey(optimizer)
        else:
            self._tell_and_end()

    def _tell_and_end(self) -> None:
        if not self._over:
            self.end()
            self._tell()

    def _followed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            self._scaling = scaler._enabled
            try:
                result = original(scaler, *args, **kwargs)
            finally:
                self._scaling = False
            if scaler._enabled:
                self._tell_and_end()
            return result

        return step
